package envelope

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxAttribute bounds every CloudEvents attribute in bytes, ids included.
const MaxAttribute = 1024

// CloudEvent is one incoming event by CloudEvents 1.0, before anything is decided about
// it. Strings alias the bytes or headers it was read from unless they had escapes.
type CloudEvent struct {
	ID, Source, Type, Subject string
	DataSchema, TraceParent   string
	Withdraws                 string
	Op                        Op
	Origin                    Origin
	SourcePartition           uint32
	HasSourcePartition        bool
	Data                      []byte // the data as JSON text; empty if there is none

	version, contentType, base64Data string
}

// AttributeError says what is wrong with an attribute of a CloudEvent.
type AttributeError struct {
	Name string // of the attribute, e.g. specversion
	Rule string // "is missing"
	Twin bool   // the attribute stands there twice
}

// Error answers one sentence.
func (e *AttributeError) Error() string { return "CloudEvents attribute " + e.Name + " " + e.Rule }

// CloudEventMIME and BatchMIME are the content types of structured mode.
const (
	CloudEventMIME = "application/cloudevents+json"
	BatchMIME      = "application/cloudevents-batch+json"
)

// ParseCloudEvent reads one structured-mode event (a JSON object) into ce. d is used for
// parsing; afterwards it holds the event with its data at the answered node, or the
// parsed data alone if that came as data_base64. Node -1: the event has no data. The
// error is a *JSONError or an *AttributeError.
//
// Unknown extensions are ignored, and so are sourceoffset, partitiongeneration and
// ingesttime: Tidemark states them itself. An attribute that is null counts as absent.
// A traceparent that is none is dropped, as W3C Trace Context demands.
func ParseCloudEvent(d *Document, src []byte, ce *CloudEvent) (Node, error) {
	*ce = CloudEvent{}
	if err := d.Parse(src, MaxDepth+1); err != nil {
		return -1, err
	}
	if d.Kind(0) != Object {
		return -1, &JSONError{Malformed, 0, "a CloudEvent must be a JSON object"}
	}
	data := Node(-1)
	for i := int32(1); i < d.nodes[0].next; i = d.nodes[i].next {
		name, n := alias(d.decodedName(i)), Node(i)
		if name == "data" {
			data = n
			continue
		}
		if d.Kind(n) == Null || !known(name) {
			continue
		}
		if k := d.Kind(n); k != String && (name != "sourcepartition" || k != Number) {
			return -1, &AttributeError{Name: name, Rule: "must be a string"}
		}
		if err := ce.set(name, d.Text(n)); err != nil {
			return -1, err
		}
	}
	if data >= 0 {
		ce.Data = d.Raw(data)
	}
	return ce.finish(d, data)
}

// ParseBinaryEvent reads a binary-mode event: attributes as BinaryAttributes answers
// them, and data. Apart from that it does what ParseCloudEvent does.
func ParseBinaryEvent(d *Document, attributes map[string]string, data []byte, ce *CloudEvent) (Node, error) {
	*ce = CloudEvent{}
	for name, value := range attributes {
		if name == "data_base64" || !known(name) {
			continue
		}
		if err := ce.set(name, value); err != nil {
			return -1, firstFault(attributes)
		}
	}
	if len(data) == 0 {
		return ce.finish(d, -1)
	}
	if err := d.Parse(data, MaxDepth); err != nil {
		return -1, err
	}
	ce.Data = d.Raw(0)
	return ce.finish(d, 0)
}

// firstFault answers the error of the faulty attribute that comes first by name, so that
// the same headers always give the same answer.
func firstFault(attributes map[string]string) error {
	var first error
	least := ""
	for name, value := range attributes {
		if !known(name) || name == "data_base64" {
			continue
		}
		var scratch CloudEvent
		if err := scratch.set(name, value); err != nil && (first == nil || name < least) {
			first, least = err, name
		}
	}
	return first
}

func known(name string) bool {
	switch name {
	case "specversion", "id", "source", "type", "subject", "dataschema", "datacontenttype", "data_base64",
		"op", "origin", "withdraws", "sourcepartition", "traceparent":
		return true
	}
	return false
}

func (ce *CloudEvent) set(name, value string) error {
	if name == "data_base64" {
		ce.base64Data = value
		return nil
	}
	switch {
	case len(value) > MaxAttribute:
		return &AttributeError{Name: name, Rule: fmt.Sprintf("is longer than %d bytes", MaxAttribute)}
	case !utf8.ValidString(value):
		return &AttributeError{Name: name, Rule: "is not valid UTF-8"}
	}
	ok := true
	switch name {
	case "specversion":
		ce.version = value
	case "id":
		ce.ID = value
	case "source":
		ce.Source = value
	case "type":
		ce.Type = value
	case "subject":
		ce.Subject = value
	case "dataschema":
		ce.DataSchema = value
	case "datacontenttype":
		ce.contentType = value
	case "withdraws":
		ce.Withdraws = value
	case "traceparent":
		if traceParent(value) {
			ce.TraceParent = value
		}
	case "op":
		ce.Op, ok = ParseOp(value)
	case "origin":
		ce.Origin, ok = ParseOrigin(value)
	case "sourcepartition":
		number, err := ParseDecimal(value, 0)
		ok = err == nil && number >= 0 && number < 1<<32
		ce.SourcePartition, ce.HasSourcePartition = uint32(number), true
	}
	if !ok {
		return &AttributeError{Name: name, Rule: fmt.Sprintf("cannot be %.64q", value)}
	}
	return nil
}

// finish checks what an event must have and brings data_base64 into place. A missing id
// is left to the caller, who has a reason of its own for it.
func (ce *CloudEvent) finish(d *Document, data Node) (Node, error) {
	switch {
	case ce.version == "":
		return -1, &AttributeError{Name: "specversion", Rule: "is missing; it must be 1.0"}
	case ce.version != "1.0":
		return -1, &AttributeError{Name: "specversion", Rule: fmt.Sprintf("is %.64q; it must be 1.0", ce.version)}
	case ce.Source == "":
		return -1, &AttributeError{Name: "source", Rule: "is missing"}
	case ce.Type == "":
		return -1, &AttributeError{Name: "type", Rule: "is missing"}
	case !jsonType(ce.contentType):
		return -1, &AttributeError{Name: "datacontenttype", Rule: fmt.Sprintf("is %.64q; data must be JSON", ce.contentType)}
	case ce.base64Data == "":
		return data, nil
	case data >= 0:
		return -1, &AttributeError{Name: "data_base64", Rule: "stands beside data; one of them must go", Twin: true}
	}
	decoded, err := base64.StdEncoding.DecodeString(ce.base64Data)
	if err != nil {
		return -1, &AttributeError{Name: "data_base64", Rule: "is not base64"}
	}
	if err := d.Parse(decoded, MaxDepth); err != nil {
		return -1, err
	}
	ce.Data = d.Raw(0)
	return 0, nil
}

// jsonType answers whether a datacontenttype means JSON; absent means JSON.
func jsonType(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	return kind == "" || kind == "application/json" || kind == "text/json" || strings.HasSuffix(kind, "+json")
}

// traceParent answers whether text is a W3C traceparent: version-trace-span-flags.
func traceParent(text string) bool {
	if len(text) < 55 || len(text) > 256 || text[2] != '-' || text[35] != '-' || text[52] != '-' || len(text) > 55 && text[55] != '-' {
		return false
	}
	for i := range 55 {
		c := text[i]
		if i != 2 && i != 35 && i != 52 && !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return text[:2] != "ff" && strings.Trim(text[3:35], "0") != "" && strings.Trim(text[36:52], "0") != ""
}

// ParseOp reads "assert" or "retract"; an empty text asserts.
func ParseOp(text string) (Op, bool) {
	switch text {
	case "", "assert":
		return Assert, true
	case "retract":
		return Retract, true
	}
	return Assert, false
}

// String answers "assert" or "retract".
func (o Op) String() string {
	if o == Retract {
		return "retract"
	}
	return "assert"
}

// originNames is ordered as the constants are. Never written to.
var originNames = [...]string{"live", "replay", "backfill", "repair"}

// ParseOrigin reads "live", "replay", "backfill" or "repair"; an empty text is live.
func ParseOrigin(text string) (Origin, bool) {
	if text == "" {
		return OriginLive, true
	}
	for i, name := range originNames {
		if text == name {
			return Origin(i), true
		}
	}
	return OriginLive, false
}

// String answers the word that ParseOrigin reads.
func (o Origin) String() string {
	if int(o) < len(originNames) {
		return originNames[o]
	}
	return fmt.Sprintf("origin(%d)", uint8(o))
}

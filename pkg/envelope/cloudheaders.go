package envelope

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Mode is how a request carries CloudEvents.
type Mode uint8

// Modes of a request.
const (
	ModePlain      Mode = 0 // no CloudEvents: the body is data
	ModeStructured Mode = 1 // the body is one event
	ModeBatch      Mode = 2 // the body is a JSON array of events
	ModeBinary     Mode = 3 // the headers are the attributes, the body is the data
)

// DetectMode answers how a request or NATS message carries CloudEvents. header is an
// http.Header or a nats.Header; names are compared without case, since net/http writes
// Ce-Id and NATS keeps ce-id.
//
// A Content-Type of application/cloudevents decides first, then any ce- header. The
// NATS part of the Go SDK sends structured events with no header at all; hence a body
// without a Content-Type that is an object with the members specversion, id, source and
// type counts as structured, too.
func DetectMode(header map[string][]string, body []byte) Mode {
	contentType, binary := "", false
	for name, values := range header {
		switch {
		case strings.EqualFold(name, "Content-Type") && len(values) > 0:
			contentType = strings.ToLower(strings.TrimSpace(values[0]))
		case hasCEPrefix(name):
			binary = true
		}
	}
	switch {
	case strings.HasPrefix(contentType, "application/cloudevents-batch"):
		return ModeBatch
	case strings.HasPrefix(contentType, "application/cloudevents"):
		return ModeStructured
	case binary:
		return ModeBinary
	case contentType == "" && looksStructured(body):
		return ModeStructured
	}
	return ModePlain
}

func hasCEPrefix(name string) bool {
	return len(name) > 3 && name[0]|0x20 == 'c' && name[1]|0x20 == 'e' && name[2] == '-'
}

func looksStructured(body []byte) bool {
	if !strings.Contains(alias(body), `"specversion"`) {
		return false
	}
	var d Document
	if d.Parse(body, MaxDepth+1) != nil {
		return false
	}
	found := 0
	d.Members(0, func(name string, value Node) bool {
		switch name {
		case "specversion", "id", "source", "type":
			if d.Kind(value) == String {
				found++
			}
		}
		return true
	})
	return d.Kind(0) == Object && found == 4
}

// BinaryAttributes answers the attributes of a binary-mode request by lower-case name
// without ce-. Both dialects are read: values percent-encoded (the HTTP and NATS
// bindings), quoted (RFC 9110 quoted-string) or raw (Go SDK; a percent sign that leads
// no two hexadecimal digits stands for itself), and the content type as
// ce-datacontenttype (NATS binding, which wins) or Content-Type (HTTP, Go SDK). A header
// traceparent counts where there is no ce-traceparent.
//
// The error is an *AttributeError: an attribute twice, a name that is not lower-case
// letters and digits, or a value that is not UTF-8.
func BinaryAttributes(header map[string][]string) (map[string]string, error) {
	out := make(map[string]string, len(header))
	contentType, trace := "", ""
	for name, values := range header {
		switch {
		case len(values) == 0:
			continue
		case strings.EqualFold(name, "Content-Type"):
			contentType = values[0]
			continue
		case strings.EqualFold(name, "traceparent"):
			trace = values[0]
			continue
		case !hasCEPrefix(name):
			continue
		}
		attribute := strings.ToLower(name[3:])
		if !attributeName(attribute) {
			return nil, &AttributeError{Name: strconv.Quote(attribute), Rule: "has a name with other than letters and digits"}
		}
		if _, twice := out[attribute]; twice || len(values) > 1 {
			return nil, &AttributeError{Name: attribute, Rule: "stands in the headers twice", Twin: true}
		}
		value := decodeHeader(values[0])
		if !utf8.ValidString(value) {
			return nil, &AttributeError{Name: attribute, Rule: "is not valid UTF-8"}
		}
		out[attribute] = value
	}
	if _, set := out["datacontenttype"]; !set && contentType != "" {
		out["datacontenttype"] = contentType
	}
	if _, set := out["traceparent"]; !set && trace != "" {
		out["traceparent"] = trace
	}
	return out, nil
}

func attributeName(name string) bool {
	for i := range len(name) {
		if c := name[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9') {
			return false
		}
	}
	return name != ""
}

// decodeHeader takes quotes and then percent escapes off a header value.
func decodeHeader(value string) string {
	value = strings.Trim(value, " \t")
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		value = unquoteHeader(value[1 : len(value)-1])
	}
	if !strings.Contains(value, "%") {
		return value
	}
	out := make([]byte, 0, len(value))
	for i := 0; i < len(value); i++ {
		if value[i] == '%' && i+2 < len(value) {
			if c, err := strconv.ParseUint(value[i+1:i+3], 16, 8); err == nil {
				out = append(out, byte(c))
				i += 2
				continue
			}
		}
		out = append(out, value[i])
	}
	return string(out)
}

func unquoteHeader(inside string) string {
	if !strings.Contains(inside, `\`) {
		return inside
	}
	out := make([]byte, 0, len(inside))
	for i := 0; i < len(inside); i++ {
		if inside[i] == '\\' && i+1 < len(inside) {
			i++
		}
		out = append(out, inside[i])
	}
	return string(out)
}

// encodeHeader percent-encodes what the bindings say: space, quote, percent and
// everything outside U+0021 to U+007E.
func encodeHeader(value string) string {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(value))
	for i := range len(value) {
		c := value[i]
		if c > ' ' && c < 0x7f && c != '"' && c != '%' {
			out = append(out, c)
			continue
		}
		out = append(out, '%', hex[c>>4], hex[c&15])
	}
	return string(out)
}

// SplitArray answers the elements of a JSON array (a batch), each exactly as it stands
// there; they alias src. Only the brackets of src are judged, so that one damaged event
// does not take the others of its batch with it: every element is parsed, and refused,
// on its own. The error is a *JSONError.
func SplitArray(src []byte) ([][]byte, error) {
	i := skipSpace(src, 0)
	if i == len(src) || src[i] != '[' {
		return nil, &JSONError{Malformed, i, "a batch must be a JSON array"}
	}
	var out [][]byte
	i = skipSpace(src, i+1)
	if i < len(src) && src[i] == ']' {
		return out, afterArray(src, i+1)
	}
	for {
		i = skipSpace(src, i)
		end := elementEnd(src, i)
		if end == len(src) {
			return nil, &JSONError{Malformed, end, "the JSON text ends too early"}
		}
		if end == i || src[end] == '}' {
			return nil, &JSONError{Malformed, end, "no element, or a stray bracket, in a batch"}
		}
		element := src[i:end]
		for isSpace(element[len(element)-1]) {
			element = element[:len(element)-1]
		}
		out = append(out, element)
		i = end + 1
		if src[end] == ']' {
			return out, afterArray(src, i)
		}
	}
}

// elementEnd answers the index of the comma or bracket that ends the element at i.
func elementEnd(src []byte, i int) int {
	depth := 0
	for ; i < len(src); i++ {
		switch src[i] {
		case '"':
			for i++; i < len(src) && src[i] != '"'; i++ {
				if src[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return len(src)
}

func afterArray(src []byte, i int) error {
	if i = skipSpace(src, i); i < len(src) {
		return &JSONError{Malformed, i, "bytes after the end of the batch"}
	}
	return nil
}

// plainType stands for the type of events that came in as plain records: CloudEvents
// demands one.
const plainType = "tidemark.event"

// CloudEventHeaders answers ev in binary mode: headers by name (ce-id, …) with
// percent-encoded values, as the HTTP and NATS bindings write them; the body is ev.Data.
func CloudEventHeaders(ev *Event) map[string]string {
	out := map[string]string{"Content-Type": "application/json", "ce-datacontenttype": "application/json"}
	ev.attributes(func(name, value string, _ bool) { out["ce-"+name] = encodeHeader(value) })
	return out
}

// AppendCloudEvent appends ev as one structured-mode JSON object to dst. Numbers beyond
// the 32 bits of a CloudEvents integer are written as strings.
func AppendCloudEvent(dst []byte, ev *Event) []byte {
	dst = append(dst, '{')
	ev.attributes(func(name, value string, integer bool) {
		dst = append(AppendJSONString(dst, name), ':')
		if integer {
			dst = append(dst, value...)
		} else {
			dst = AppendJSONString(dst, value)
		}
		dst = append(dst, ',')
	})
	dst = append(dst, `"datacontenttype":"application/json"`...)
	if len(ev.Data) > 0 {
		dst = append(append(dst, `,"data":`...), ev.Data...)
	}
	return append(dst, '}')
}

// attributes calls each for every attribute that ev has, in a fixed order.
func (ev *Event) attributes(each func(name, value string, integer bool)) {
	text := func(name, value string) {
		if value != "" {
			each(name, value, false)
		}
	}
	text("specversion", "1.0")
	text("id", ev.ID)
	text("source", ev.Source)
	if ev.Type == "" {
		text("type", plainType)
	}
	text("type", ev.Type)
	text("subject", ev.Subject)
	text("dataschema", ev.DataSchema)
	if ev.Op == Retract {
		text("op", ev.Op.String())
	}
	text("withdraws", ev.Withdraws)
	if ev.Origin != OriginLive {
		text("origin", ev.Origin.String())
	}
	partition := strconv.FormatUint(uint64(ev.SourcePartition), 10)
	each("sourcepartition", partition, ev.SourcePartition < 1<<31)
	if ev.SourceOffset > 0 {
		text("sourceoffset", strconv.FormatUint(ev.SourceOffset, 10))
	}
	if ev.PartitionGeneration > 0 {
		text("partitiongeneration", strconv.FormatUint(ev.PartitionGeneration, 10))
	}
	if ev.IngestTime != 0 {
		text("ingesttime", ev.IngestTime.String())
	}
	text("traceparent", ev.TraceParent)
}

// String answers the mode's name.
func (m Mode) String() string {
	switch m {
	case ModePlain:
		return "plain"
	case ModeStructured:
		return "structured"
	case ModeBatch:
		return "batch"
	case ModeBinary:
		return "binary"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

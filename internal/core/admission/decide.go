package admission

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Admitter decides events of one business stream. Not safe for concurrent use: it
// reuses buffers.
type Admitter struct {
	stream     *policy.BusinessStream
	keys       []envelope.Pointer
	times      []envelope.Pointer // one per extractor
	values     []envelope.Pointer
	generation string // schemaGeneration as text; empty = any

	idPath  string // the id pointer of the item before, as text
	id      envelope.Pointer
	idError error

	doc     envelope.Document
	ce      envelope.CloudEvent
	scratch []byte           // canonical form of one event's data, or a key being joined
	joined  [keyCache]string // joined keys of late, by hash: keys repeat, copies need not
}

// keyCache is how many joined keys an Admitter remembers; a power of two.
const keyCache = 1024

// New answers an Admitter for the stream. It panics if the stream holds a path that is
// no JSON Pointer, which policy.Parse never lets through.
func New(bs *policy.BusinessStream) *Admitter {
	a := &Admitter{stream: bs, id: mustPointer("/id"), idPath: "/id"}
	if bs.SchemaGeneration > 0 {
		a.generation = strconv.Itoa(bs.SchemaGeneration)
	}
	for _, path := range bs.Key {
		a.keys = append(a.keys, mustPointer(path))
	}
	for _, extractor := range bs.Extractors {
		a.times = append(a.times, mustPointer(extractor.Path))
	}
	for _, value := range bs.Values {
		a.values = append(a.values, mustPointer(value.Path))
	}
	return a
}

func mustPointer(text string) envelope.Pointer {
	p, err := envelope.ParsePointer(text)
	if err != nil {
		panic(fmt.Sprintf("admission: the business stream was not checked: %v", err))
	}
	return p
}

// Frame answers the extractor and value names that Times and Values of decided events
// are aligned with.
func (a *Admitter) Frame() (extractors, values []string) {
	for _, extractor := range a.stream.Extractors {
		extractors = append(extractors, extractor.Name)
	}
	for _, value := range a.stream.Values {
		values = append(values, value.Name)
	}
	return extractors, values
}

// Decide answers the event, or why it is refused. partition is the source partition of
// the request; now is the arrival time. Offset, generation and IngestTime are set by the
// caller. The event's strings and Data may alias it.Bytes and it.Header and stay valid as
// long as those; Times and Values reuse the room that ev brings along. Of a refused
// event, ID and Source are set as far as they were read, the rest means nothing.
func (a *Admitter) Decide(it Item, partition uint32, now envelope.IngestTime, ev *envelope.Event) *Refusal {
	*ev = envelope.Event{Times: ev.Times[:0], Values: ev.Values[:0], SourcePartition: partition}
	if int64(len(it.Bytes)) > a.stream.MaxEventBytes {
		return refuse(TooLarge, "the event has %d bytes, the stream allows %d", len(it.Bytes), a.stream.MaxEventBytes)
	}
	data, refusal := a.read(it, ev)
	if refusal != nil {
		return refusal
	}
	if refusal := a.checkOrigin(it, partition, ev); refusal != nil {
		return refusal
	}
	if refusal := a.joinKey(data, ev); refusal != nil {
		return refusal
	}
	if refusal := a.readTimes(data, now, ev); refusal != nil {
		return refusal
	}
	if refusal := a.readValues(data, ev); refusal != nil {
		return refusal
	}
	if refusal := a.checkRetraction(ev); refusal != nil {
		return refusal
	}
	a.scratch = a.doc.AppendCanonical(a.scratch[:0], data)
	ev.Digest = sha256.Sum256(a.scratch)
	return nil
}

func refuse(reason Reason, rule string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Rule: fmt.Sprintf(rule, args...)}
}

// read parses the item and fills what the transport's format states. It answers the node
// of the event's data; a CloudEvent without data answers with a missing key, since every
// stream reads its key from the data.
func (a *Admitter) read(it Item, ev *envelope.Event) (envelope.Node, *Refusal) {
	if it.Format == Plain {
		return 0, a.readPlain(it, ev)
	}
	var data envelope.Node
	var err error
	switch it.Format {
	case CloudEvent:
		data, err = envelope.ParseCloudEvent(&a.doc, it.Bytes, &a.ce)
	case Binary:
		data, err = envelope.ParseBinaryEvent(&a.doc, it.Header, it.Bytes, &a.ce)
	default:
		return 0, refuse(MalformedJSON, "the request has the unknown format %d", it.Format)
	}
	ce := &a.ce
	ev.ID, ev.Source, ev.Type, ev.Subject = ce.ID, ce.Source, ce.Type, ce.Subject
	ev.Op, ev.Origin, ev.Withdraws = ce.Op, ce.Origin, ce.Withdraws
	ev.DataSchema, ev.TraceParent, ev.Data = ce.DataSchema, ce.TraceParent, ce.Data
	switch {
	case err != nil:
		return 0, unreadable(err)
	case ev.ID == "":
		return 0, refuse(MissingID, "CloudEvents attribute id is missing or empty")
	}
	return data, nil
}

func (a *Admitter) readPlain(it Item, ev *envelope.Event) *Refusal {
	ev.Source = it.Source
	if err := a.doc.Parse(it.Bytes, envelope.MaxDepth); err != nil {
		return unreadable(err)
	}
	ev.Data = a.doc.Raw(0)
	if it.IDPath != a.idPath {
		path := it.IDPath
		if path == "" {
			path = "/id"
		}
		a.id, a.idError = envelope.ParsePointer(strings.Clone(path))
		a.idPath = strings.Clone(it.IDPath)
	}
	if a.idError != nil {
		return refuse(MissingID, "the id path of the request: %v", a.idError)
	}
	n, found := a.doc.Lookup(0, &a.id)
	switch {
	case !found:
		return refuse(MissingID, "nothing stands at %s", a.id)
	case a.doc.Kind(n) == envelope.String, a.doc.Kind(n) == envelope.Number && integer(a.doc.Raw(n)):
		ev.ID = a.doc.Text(n)
	default:
		return refuse(MissingID, "the id at %s is %.64s, neither a string nor an integer", a.id, a.doc.Raw(n))
	}
	switch {
	case ev.ID == "":
		return refuse(MissingID, "the id at %s is empty", a.id)
	case len(ev.ID) > envelope.MaxAttribute:
		return refuse(MalformedJSON, "the id at %s has %d bytes, at most %d are allowed", a.id, len(ev.ID), envelope.MaxAttribute)
	}
	return nil
}

// unreadable gives an error of the envelope package its reason.
func unreadable(err error) *Refusal {
	reason := MalformedJSON
	var syntax *envelope.JSONError
	var attribute *envelope.AttributeError
	switch {
	case errors.As(err, &syntax) && syntax.Fault == envelope.TooDeep:
		reason = TooDeep
	case errors.As(err, &syntax) && syntax.Fault == envelope.Duplicate:
		reason = DuplicateField
	case errors.As(err, &attribute) && attribute.Twin:
		reason = DuplicateField
	}
	return &Refusal{Reason: reason, Rule: err.Error()}
}

// integer answers whether the text of a JSON number is that of an integer: digits with
// at most a sign before them.
func integer(text []byte) bool {
	for i, c := range text {
		if (c < '0' || c > '9') && (i > 0 || c != '-') {
			return false
		}
	}
	return true
}

// checkOrigin checks what the event says about its schema and about where it comes from.
//
// A dataschema states generation 3 as "3", or as a URI that ends in "/3" or "#3". An
// event without dataschema is taken to be of the stream's generation.
func (a *Admitter) checkOrigin(it Item, partition uint32, ev *envelope.Event) *Refusal {
	if ev.DataSchema != "" && a.generation != "" {
		rest, ok := strings.CutSuffix(ev.DataSchema, a.generation)
		if !ok || rest != "" && !strings.HasSuffix(rest, "/") && !strings.HasSuffix(rest, "#") {
			return refuse(SchemaGeneration, "dataschema %.128q is not generation %s of the stream (write %s, or a URI ending in /%s)",
				ev.DataSchema, a.generation, a.generation, a.generation)
		}
	}
	switch {
	case ev.Source == "":
		return refuse(UnknownPartition, "the request names no source")
	case it.Source != "" && it.Source != ev.Source:
		return refuse(UnknownPartition, "the event is of source %.128q, the request of source %.128q", ev.Source, it.Source)
	case it.Format != Plain && a.ce.HasSourcePartition && a.ce.SourcePartition != partition:
		return refuse(UnknownPartition, "the event is of source partition %d, the request of source partition %d", a.ce.SourcePartition, partition)
	}
	return nil
}

func (a *Admitter) checkRetraction(ev *envelope.Event) *Refusal {
	switch {
	case ev.Op == envelope.Assert && ev.Withdraws != "":
		return refuse(RetractTarget, "withdraws is set, but op is not retract")
	case ev.Op == envelope.Assert:
		return nil
	case !a.stream.Retractions:
		return refuse(RetractNotAllowed, "the stream does not allow retractions (retractions: true)")
	case ev.Withdraws == "":
		return refuse(RetractTarget, "op is retract, but withdraws names no id")
	case ev.Withdraws == ev.ID:
		return refuse(RetractTarget, "the retraction withdraws itself; it needs an id of its own")
	}
	return nil
}

// KeyPartition answers FNV-1a-32(key) mod partitions.
func KeyPartition(key string, partitions int) int {
	return int(fnv1a(key) % uint32(partitions))
}

func fnv1a[T string | []byte](key T) uint32 {
	hash := uint32(2166136261)
	for i := range len(key) {
		hash = (hash ^ uint32(key[i])) * 16777619
	}
	return hash
}

package ingest

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Media types of bodies.
const (
	typeJSON          = "application/json"
	typeNDJSON        = "application/x-ndjson"
	typeCSV           = "text/csv"
	typeCloudEvent    = "application/cloudevents+json"
	typeBatch         = "application/cloudevents-batch+json"
	typeCELines       = "application/cloudevents+ndjson" // one CloudEvent a line
	ContentTypeResume = "application/vnd.tidemark.resume+json"
)

// split takes a body apart into items, each with its exact bytes. What cannot be told
// apart is refused whole; what is wrong within one item is that item's affair. Without a
// content type the body is read as fallback.
func (r *Request) split(header map[string][]string, fallback string, body []byte) error {
	media, err := mediaType(header, fallback)
	if err != nil {
		return err
	}
	if r.IDPath != "" {
		if _, err := envelope.ParsePointer(r.IDPath); err != nil {
			return badRequest("write where the id stands, such as /id", "the id path: %v", err)
		}
	}
	switch mode := envelope.DetectMode(header, body); {
	case media == typeCELines:
		r.Items = lines(body, admission.CloudEvent)
	case mode == envelope.ModeStructured:
		r.Items = []Item{{Format: admission.CloudEvent, Bytes: body}}
	case mode == envelope.ModeBatch:
		r.Items, err = elements(body, admission.CloudEvent)
	case mode == envelope.ModeBinary:
		r.binary(header, body)
	case media == typeNDJSON || media == "application/ndjson" || media == "application/jsonl":
		r.Items = lines(body, admission.Plain)
	case media == typeCSV:
		err = r.rows(body)
	case media == typeJSON && isArray(body):
		r.Items, err = elements(body, admission.Plain)
	case media == typeJSON:
		r.Items = []Item{{Format: admission.Plain, Bytes: body}}
	default:
		err = unsupported("content type %q is not known", media)
	}
	if err != nil {
		return err
	}
	if len(r.Items) == 1 && r.Items[0].Format != admission.Binary && len(bytes.TrimSpace(r.Items[0].original())) == 0 {
		r.Items = nil
	}
	if len(r.Items) == 0 && !r.Finish {
		return badRequest("send at least one event", "the request holds no event")
	}
	return nil
}

// mediaType answers the content type; a packed body is refused, since its bytes would go
// to quarantine as they are.
func mediaType(header map[string][]string, fallback string) (string, error) {
	for name, values := range header {
		if strings.EqualFold(name, "Content-Encoding") && len(values) > 0 && values[0] != "" && !strings.EqualFold(values[0], "identity") {
			return "", refuse(http.StatusUnsupportedMediaType, "unsupported-media-type", "send the body as it is", "content encoding %q is not known", values[0])
		}
	}
	for name, values := range header {
		if strings.EqualFold(name, subject.HeaderContentType) && len(values) > 0 && values[0] != "" {
			media, _, err := mime.ParseMediaType(values[0])
			if err != nil {
				return "", unsupported("content type %q cannot be read: %v", values[0], err)
			}
			return media, nil
		}
	}
	return fallback, nil
}

func unsupported(format string, args ...any) *Error {
	known := []string{typeCloudEvent, typeBatch, typeJSON, typeNDJSON, typeCELines, typeCSV}
	return refuse(http.StatusUnsupportedMediaType, "unsupported-media-type", "send one of "+strings.Join(known, ", "), format, args...)
}

func isArray(body []byte) bool {
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '['
}

// binary takes one event whose attributes are headers. Headers that are no attributes
// are kept with the refused event as they came.
func (r *Request) binary(header map[string][]string, body []byte) {
	it := Item{Format: admission.Binary, Bytes: body}
	attributes, err := envelope.BinaryAttributes(header)
	if err != nil {
		it.refused = &admission.Refusal{Reason: admission.MalformedJSON, Rule: err.Error()}
		var attribute *envelope.AttributeError
		if errors.As(err, &attribute) && attribute.Twin {
			it.refused.Reason = admission.DuplicateField
		}
		attributes = make(map[string]string, len(header))
		for name, values := range header {
			attributes[name] = strings.Join(values, ", ")
		}
	}
	r.Header, r.Items = attributes, []Item{it}
}

// elements takes a JSON array apart; a malformed element does not spoil the others.
func elements(body []byte, format admission.Format) ([]Item, error) {
	parts, err := envelope.SplitArray(body)
	if err != nil {
		return nil, badRequest("send a JSON array of events, such as [{…}, {…}]", "the body is no JSON array: %v", err)
	}
	items := make([]Item, len(parts))
	for i, part := range parts {
		items[i] = Item{Format: format, Bytes: part}
	}
	return items, nil
}

// lines takes one item from every line that is not blank.
func lines(body []byte, format admission.Format) []Item {
	items := make([]Item, 0, bytes.Count(body, []byte{'\n'})+1)
	for len(body) > 0 {
		line := body
		if end := bytes.IndexByte(body, '\n'); end >= 0 {
			line, body = body[:end], body[end+1:]
		} else {
			body = nil
		}
		line = bytes.TrimSuffix(line, []byte{'\r'})
		if len(bytes.TrimSpace(line)) > 0 {
			items = append(items, Item{Format: format, Bytes: line})
		}
	}
	return items
}

// rows takes the rows of a CSV body; the first one names the columns.
func (r *Request) rows(body []byte) error {
	reader := csv.NewReader(bytes.NewReader(body))
	reader.FieldsPerRecord, reader.ReuseRecord = -1, true
	names, err := reader.Read()
	if err != nil {
		return badRequest("the first row must name the columns", "the CSV header row cannot be read: %v", err)
	}
	header, err := envelope.NewCSVHeader(names)
	if err != nil {
		return badRequest("the first row must name the columns", "%v", err)
	}
	r.columns = slices.Clone(names)
	for {
		from := reader.InputOffset()
		cells, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		raw := bytes.Trim(body[from:reader.InputOffset()], "\r\n")
		it := Item{Format: admission.Plain, Bytes: raw, raw: raw}
		if err == nil {
			it.Bytes, err = header.AppendObject(make([]byte, 0, len(raw)+64), cells)
		}
		if err != nil {
			it.Bytes, it.refused = nil, &admission.Refusal{Reason: admission.MalformedJSON, Rule: err.Error()}
		}
		r.Items = append(r.Items, it)
		if from == reader.InputOffset() {
			return nil
		}
	}
}

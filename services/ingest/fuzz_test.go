package ingest

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// FuzzBody takes request bodies apart in every content type: items are parts of the body,
// in order, and nothing of them is made up.
func FuzzBody(f *testing.F) {
	types := []string{typeJSON, typeNDJSON, typeCSV, typeCloudEvent, typeBatch, typeCELines, ""}
	f.Add(byte(0), []byte(`[{"id":"1"},{"id":"2"}]`))
	f.Add(byte(1), []byte("{\"id\":\"1\"}\r\n\n{\"id\":\"2\"}"))
	f.Add(byte(2), []byte("id,note\n1,\"a, \"\"b\"\"\"\r\n\n3,\"open"))
	f.Add(byte(3), []byte(`{"specversion":"1.0","id":"1"}`))
	f.Add(byte(4), []byte(`[{"id":"]"},"x",1]`))
	f.Add(byte(5), []byte("{}\n{"))
	f.Add(byte(0), []byte(strings.Repeat("[", 2000)))
	f.Fuzz(func(t *testing.T, kind byte, body []byte) {
		media := types[int(kind)%len(types)]
		req := &Request{}
		before := bytes.Clone(body)
		if err := req.split(http.Header{"Content-Type": {media}}, typeNDJSON, body); err != nil {
			return
		}
		if !bytes.Equal(before, body) {
			t.Fatal("the body was changed")
		}
		from := 0
		for i := range req.Items {
			text := req.Items[i].original()
			at := bytes.Index(body[from:], text)
			if at < 0 {
				t.Fatalf("%s, item %d: %q does not stand in the body behind byte %d", media, i, text, from)
			}
			from += at + len(text)
			if media == typeCSV && req.Items[i].refused == nil {
				var d envelope.Document
				if err := d.Parse(req.Items[i].Bytes, 64); err != nil {
					t.Fatalf("row %d became %q: %v", i, req.Items[i].Bytes, err)
				}
			}
		}
	})
}

package envelope_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// FuzzCSV turns rows into objects: what is taken is JSON with the cells, exactly.
func FuzzCSV(f *testing.F) {
	f.Add("id,amount", "1,2.50")
	f.Add("\ufeffid,näme", "a\"b,\u2028")
	f.Add("id,ID", "1,2")
	f.Add("a", "\xff")
	f.Fuzz(func(t *testing.T, header, cells string) {
		names, row := strings.Split(header, ","), strings.Split(cells, ",")
		h, err := envelope.NewCSVHeader(names)
		if err != nil {
			return
		}
		text, err := h.AppendObject([]byte("x"), row)
		if err != nil {
			return
		}
		var back map[string]string
		if err := json.Unmarshal(text[1:], &back); err != nil || len(back) != len(row) {
			t.Fatalf("%q: %v", text, err)
		}
		for i, name := range names {
			if i == 0 {
				name = strings.TrimPrefix(name, "\ufeff")
			}
			if back[name] != row[i] {
				t.Fatalf("column %q is %q, want %q", name, back[name], row[i])
			}
		}
		var d envelope.Document
		if err := d.Parse(text[1:], 64); err != nil {
			t.Fatalf("the strict reader refuses %q: %v", text[1:], err)
		}
	})
}

// FuzzQuarantine reads quarantine records.
func FuzzQuarantine(f *testing.F) {
	r := envelope.QuarantineRecord{Source: "shop", Partition: 1, Offset: 1<<32 | 5, Reason: "malformed-json", Rule: "r", IngestTime: time.Unix(1, 0).UTC(), Bytes: []byte("\xff{")}
	good, err := r.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(bytes.Replace(good, []byte("v1"), []byte("v2"), 1))
	f.Add([]byte(`{"schema":"quarantineRecord.v1","bytes":"!"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := envelope.DecodeQuarantine(data)
		if err != nil {
			return
		}
		again, err := r.Encode()
		if err != nil {
			return // a time that JSON cannot write
		}
		back, err := envelope.DecodeQuarantine(again)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := back.Encode()
		if err != nil || !reflect.DeepEqual(again, twice) {
			t.Fatalf("%s became %s: %v", again, twice, err)
		}
	})
}

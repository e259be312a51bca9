package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// hostile is one body that must not do any harm. reason is what the event is quarantined
// for; "" when the request as a whole is refused.
type hostile struct {
	name, body, reason string
}

// hostileInput has no line breaks: each is one event of an NDJSON request.
func hostileInput() []hostile {
	event := func(id, rest string) string {
		return fmt.Sprintf(`{"id":%q,"user":"u","n":1,"at":1740816000000%s}`, id, rest)
	}
	padded := func(size int) string {
		text := event("big", `,"pad":"`)
		return text[:len(text)-1] + strings.Repeat("x", size-len(text)-1) + `"}`
	}
	return []hostile{
		{"10^5 nested arrays", event("deep", `,"x":`+strings.Repeat("[", 1e5)+strings.Repeat("]", 1e5)), "too-deep"},
		{"5·10^4 nested objects, never closed", strings.Repeat(`{"a":`, 5e4), "too-deep"},
		{"a key twice", event("twice", `,"n":2`), "duplicate-field"},
		{"a key twice but for its case", event("case", `,"N":2`), "duplicate-field"},
		{"an escaped key twice", event("escaped", `,"\u006e":2`), "duplicate-field"},
		{"invalid UTF-8", event("utf", `,"x":"`+"\xff\xfe"+`"`), "malformed-json"},
		{"an overlong slash", event("overlong", `,"x":"`+"\xc0\xaf"+`"`), "malformed-json"},
		{"a lone surrogate", event("surrogate", `,"x":"\ud800"`), "malformed-json"},
		{"NaN", event("nan", `,"x":NaN`), "malformed-json"},
		{"1e999 as a value", `{"id":"huge","user":"u","n":1e999,"at":1740816000000}`, "value-format"},
		{"a number of 10^5 digits", `{"id":"digits","user":"u","n":` + strings.Repeat("9", 1e5) + `,"at":1740816000000}`, "value-format"},
		{"a byte order mark", "\ufeff" + event("bom", ""), "malformed-json"},
		{"something behind the event", event("trailing", "") + "{}", "malformed-json"},
		{"no JSON", "DROP TABLE clicks;", "malformed-json"},
		{"a key of 10^5 bytes", `{"id":"key","user":"` + strings.Repeat("k", 1e5) + `","n":1,"at":1740816000000}`, "key-too-long"},
		{"an id of 10^5 bytes", event(strings.Repeat("i", 1e5), ""), "malformed-json"},
		{"a NUL in the key", `{"id":"nul","user":"a\u0000b","n":1,"at":1740816000000}`, ""},
		{"a time beyond all time", `{"id":"late","user":"u","n":1,"at":99999999999999999999}`, "event-time-out-of-range"},
		{"one byte above the stream's bound", padded(256<<10 + 1), "too-large"},
		{"1 MiB - 1", padded(1<<20 - 1), "413"},
		{"1 MiB", padded(1 << 20), "413"},
		{"1 MiB + 1", padded(1<<20 + 1), "413"},
	}
}

// verdict is what ingest said about one request.
type verdict struct {
	Accepted, Quarantined int
	Items                 []struct{ Reason string }
	Error                 *struct {
		Code   string
		Status int
	}
}

func (v verdict) String() string {
	switch {
	case v.Error != nil:
		return fmt.Sprint(v.Error.Status)
	case v.Quarantined == 1 && len(v.Items) == 1:
		return v.Items[0].Reason
	}
	return fmt.Sprintf("%d accepted, %d quarantined", v.Accepted, v.Quarantined)
}

// Input that is made to do harm, over both transports: each is refused for its own
// reason, and what stands beside it goes on as if it was not there.
func TestHostileInput(t *testing.T) {
	u := startUp(t, filepath.Join(t.TempDir(), "data"))
	u.must("apply", "-f", write(t, "clicks.yaml", crashDocuments))
	conn := connect(t, u.NATS)
	viaHTTP := func(body string) (v verdict) {
		reply, err := http.Post(u.HTTP+"/v1/streams/clicks/events?source=web&partition=0", "application/x-ndjson", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		if err != nil || json.Unmarshal(text, &v) != nil {
			t.Fatalf("%d %.300s (%v)", reply.StatusCode, text, err)
		}
		return v
	}
	viaNATS := func(body string) (v verdict) {
		m := nats.NewMsg(subject.Ingest("clicks", "web", 1))
		m.Data = []byte(body)
		m.Header.Set(subject.HeaderContentType, "application/x-ndjson")
		reply, err := conn.NC.RequestMsg(m, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(reply.Data, &v); err != nil {
			t.Fatalf("%.300s: %v", reply.Data, err)
		}
		return v
	}
	good, quarantined := 0, 0
	for p := range 2 { // until both are claimed
		u.must("send", write(t, "first.jsonl", fmt.Sprintf(`{"id":"first-%d","user":"u","n":1,"at":1740816000000}`, p)), "--stream", "clicks", "--source", "web", "--partition", fmt.Sprint(p))
	}
	for name, send := range map[string]func(string) verdict{"HTTP": viaHTTP, "NATS": viaNATS} {
		for _, h := range hostileInput() {
			if name == "NATS" && int64(len(h.body)) > conn.NC.MaxPayload()-1024 {
				continue // no client could send it: the server refuses messages of this size
			}
			v := send(h.body)
			want := h.reason
			if want == "" {
				want = "1 accepted, 0 quarantined"
				good++
			} else if want != "413" {
				quarantined++
			}
			if v.String() != want {
				t.Errorf("%s, %s: %s, want %s", name, h.name, v, want)
			}
			one := fmt.Sprintf(`{"id":"good-%s-%d","user":"u","n":1,"at":1740816000000}`, name, good)
			if v := send(one); v.Accepted != 1 {
				t.Fatalf("%s: the event behind %s: %s", name, h.name, v)
			}
			good++
		}
	}
	u.must("wait", "clicks")
	u.verified("clicks")
	if n := bytes.Count([]byte(u.must("quarantine", "ls", "clicks", "-o", "ndjson")), []byte("\n")); n != quarantined {
		t.Errorf("%d events stand in quarantine, want %d", n, quarantined)
	}
}

// Webhook-receiver keeps a table of current windows from the webhooks of a job. It needs
// nothing of Tidemark: receiver.go is what a receiver in any language does.
//
//	go run ./examples/webhook-receiver SECRETFILE 127.0.0.1:9000
package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
)

// row is a current window.
type row struct {
	PolicyGeneration string
	ProjectionID     string
	Revision         uint64
	Op               string
	Key              string
	Window           struct{ Start, End string }
	Value            json.RawMessage
	AggregateDigest  string
}

// table holds the newest revision of each projection. A real one stands in a database,
// and apply is one statement there: insert … on conflict (projection_id) do update …
// where excluded.revision > revision.
type table struct {
	key     []byte
	mu      sync.Mutex
	current string // policy generation that readers see
	rows    map[string]row
}

// apply takes a message in; one that comes again or too late changes nothing.
func (t *table) apply(kind string, r *row) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if kind == "generation.switched" || t.current == "" {
		t.current = r.PolicyGeneration
	}
	if r.ProjectionID != "" && r.Revision > t.rows[r.ProjectionID].Revision {
		t.rows[r.ProjectionID] = *r
	}
	return nil
}

// shown answers the rows of the generation that readers see; retracted windows are gone.
func (t *table) shown() []row {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []row
	for _, r := range t.rows {
		if r.PolicyGeneration == t.current && r.Op == "UPSERT" {
			out = append(out, r)
		}
	}
	return out
}

func newTable(secret string) (*table, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(secret), "whsec_"))
	return &table{key: key, rows: map[string]row{}}, err
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: webhook-receiver SECRETFILE ADDRESS")
	}
	secret, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	t, err := newTable(string(secret))
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("POST /hooks", t.receive)
	http.HandleFunc("GET /rows", func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(t.shown()); err != nil {
			log.Print(err)
		}
	})
	fmt.Println("listening on", os.Args[2])
	log.Fatal(http.ListenAndServe(os.Args[2], nil))
}

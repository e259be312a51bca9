package providersim

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

const secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"

// receiver takes receipts; the first of each id is answered with refuse.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	refuse int
	seen   map[string]int
	taken  map[string]*effect.Receipt
	bad    []string
	times  []string
}

func newReceiver(t *testing.T, refuse int) *receiver {
	t.Helper()
	r := &receiver{refuse: refuse, seen: map[string]int{}, taken: map[string]*effect.Receipt{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, err := io.ReadAll(q.Body)
	if err != nil {
		r.bad = append(r.bad, err.Error())
		return
	}
	key, err := base64.StdEncoding.DecodeString(secret[len("whsec_"):])
	if err != nil {
		r.bad = append(r.bad, err.Error())
	}
	id := q.Header.Get("webhook-id")
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, q.Header.Get("webhook-timestamp"), body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); q.Header.Get("webhook-signature") != want {
		r.bad = append(r.bad, "signature "+q.Header.Get("webhook-signature"))
	}
	r.times = append(r.times, q.Header.Get("webhook-timestamp"))
	r.seen[id]++
	if r.seen[id] == 1 && r.refuse != 0 {
		w.WriteHeader(r.refuse)
		return
	}
	receipt, err := effect.DecodeReceipt(body)
	if err != nil {
		r.bad = append(r.bad, err.Error())
		return
	}
	r.taken[receipt.Key.String()] = receipt
}

func TestReceiptsAreSignedAndRepeatedUntilTheyAreTaken(t *testing.T) {
	r := newReceiver(t, 503)
	b := start(t, Options{Clock: clock.System(), Settings: Settings{Receipts: Receipts{URL: r.URL, Secret: secret}}})
	b.issue(keyOf(1))
	b.issue(keyOf(2))
	if err := b.AwaitReceipts(b.deadline()); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.bad) > 0 || len(r.seen) != 2 || len(r.times) != 4 {
		t.Fatalf("seen %v, wrong %v", r.seen, r.bad)
	}
	got := r.taken[keyOf(1)]
	if got == nil || got.Ref != b.Executions(keyOf(1))[0].ID || got.Amount != "10" || got.Subject != "ana" {
		t.Errorf("the receipt says %+v", got)
	}
}

// A receipt that nobody took is owed after a restart; one that was taken is not sent again.
func TestReceiptsAreOwedOverARestart(t *testing.T) {
	r := newReceiver(t, 0)
	b := start(t, Options{Settings: Settings{Receipts: Receipts{URL: "http://127.0.0.1:1/nobody", Secret: secret}}})
	b.issue(keyOf(1))
	b.issue(keyOf(2))
	settings := Settings{Receipts: Receipts{URL: r.URL, Secret: secret}}
	for range 2 {
		b = b.reopen(time.Minute, settings)
		if err := b.AwaitReceipts(b.deadline()); err != nil {
			t.Fatal(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.bad) > 0 || len(r.times) != 2 || len(r.taken) != 2 {
		t.Errorf("%d posts, taken %v, wrong %v", len(r.times), r.taken, r.bad)
	}
}

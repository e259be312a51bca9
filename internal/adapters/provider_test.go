package adapters

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adaptertest"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// token is the secret that every request carries; nothing may show it.
const token = "token-that-nobody-may-see"

// document parses an Adapter document and fails on what lint refuses.
func document(t testing.TB, yaml string) *policy.Adapter {
	t.Helper()
	docs, findings := policy.Parse("adapter.yaml", []byte(yaml))
	if len(findings) == 0 {
		findings = policy.Lint(docs, nil)
	}
	if len(findings) > 0 || len(docs) != 1 {
		t.Fatalf("%v in\n%s", findings, yaml)
	}
	return docs[0].Adapter
}

// secretFiles answers a reader of secrets that knows these files.
func secretFiles(files map[string]string) func(string) ([]byte, error) {
	return func(file string) ([]byte, error) {
		text, ok := files[file]
		if !ok {
			return nil, fmt.Errorf("no %s", file)
		}
		return []byte(text), nil
	}
}

// execution is a line of the provider's log.
type execution struct {
	key             effect.EffectKey
	amount, subject string
}

// provider is a provider without a protocol: it decides and keeps the log.
type provider struct {
	idempotent bool

	mu       sync.Mutex
	next     map[effect.EffectKey]adaptertest.Behaviour
	queries  map[effect.EffectKey]adaptertest.Behaviour
	known    map[effect.EffectKey][]byte
	requests map[effect.EffectKey]int
	received map[effect.EffectKey][]byte
	hidden   map[effect.EffectKey]bool
	log      []execution
	held     chan struct{}
}

func newProvider(c adaptertest.Capabilities) *provider {
	return &provider{
		idempotent: c.Idempotent,
		next:       map[effect.EffectKey]adaptertest.Behaviour{}, queries: map[effect.EffectKey]adaptertest.Behaviour{},
		known: map[effect.EffectKey][]byte{}, requests: map[effect.EffectKey]int{}, received: map[effect.EffectKey][]byte{},
		hidden: map[effect.EffectKey]bool{}, held: make(chan struct{}),
	}
}

func (p *provider) Behave(key effect.EffectKey, b adaptertest.Behaviour) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next[key] = b
}

func (p *provider) BehaveQuery(key effect.EffectKey, b adaptertest.Behaviour) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queries[key] = b
}

func (p *provider) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.held)
	p.held = make(chan struct{})
}

func (p *provider) Requests(key effect.EffectKey) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[key]
}

func (p *provider) Received(key effect.EffectKey) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.received[key]
}

func (p *provider) Executions(key effect.EffectKey) int { return len(p.executions(key, true)) }

func (p *provider) executions(key effect.EffectKey, hidden bool) (out []execution) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.log {
		if e.key == key && (hidden || !p.hidden[key]) {
			out = append(out, e)
		}
	}
	return out
}

func (p *provider) Hide(key effect.EffectKey, hide bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hidden[key] = hide
}

func (p *provider) Forget(key effect.EffectKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, key)
}

func (p *provider) Secrets() []string { return []string{token} }

// executes tells which behaviours carry the action out.
func executes(b adaptertest.Behaviour) bool {
	switch b {
	case adaptertest.Refuse, adaptertest.Throttle, adaptertest.InFlight, adaptertest.OtherBytes, adaptertest.Unlisted:
		return false
	}
	return true
}

// take takes a request with its idempotency key, which may be missing. It answers what
// the provider does, what it executed, and the channel that ends a held answer.
func (p *provider) take(body []byte, idempotencyKey string) (adaptertest.Behaviour, execution, <-chan struct{}) {
	var request struct {
		Key     effect.EffectKey `json:"effectKey"`
		Amount  json.Number      `json:"amount"`
		Subject string           `json:"subject"`
	}
	if err := json.Unmarshal(body, &request); err != nil || (idempotencyKey != "") != p.idempotent || p.idempotent && idempotencyKey != request.Key.String() {
		return adaptertest.Unlisted, execution{}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := request.Key
	p.requests[key]++
	p.received[key] = body
	b, told := p.next[key]
	delete(p.next, key)
	if !told {
		b = adaptertest.Execute
	}
	e := execution{key, request.Amount.String(), request.Subject}
	switch earlier, known := p.known[key]; {
	case !executes(b):
	case known && !bytes.Equal(earlier, body):
		b = adaptertest.OtherBytes
	case known:
	default:
		p.log = append(p.log, e)
		if p.idempotent {
			p.known[key] = body
		}
	}
	return b, e, p.held
}

// query answers what becomes of a query, and what it finds.
func (p *provider) query(key effect.EffectKey) (adaptertest.Behaviour, []execution) {
	p.mu.Lock()
	b := p.queries[key]
	delete(p.queries, key)
	p.mu.Unlock()
	return b, p.executions(key, false)
}

// shown answers an execution as the provider writes it: with numbers of its own making.
func (e execution) shown() string {
	amount := e.amount
	if amount == "12.50" {
		amount = "1250e-2"
	}
	return fmt.Sprintf(`{"id":"prov-%.6s","ref":"%s","points":%s,"account":"%s"}`, e.key, e.key, amount, e.subject)
}

// answer writes the body of a behaviour that has one of its own.
func (e execution) answer(b adaptertest.Behaviour) string {
	switch b {
	case adaptertest.NoEvidence:
		return `{"ok":true}`
	case adaptertest.OtherKey, adaptertest.QueryOther:
		e.key[0] ^= 1
	case adaptertest.OtherAmount:
		e.amount = "12.51"
	case adaptertest.TwiceNamed, adaptertest.QueryMangled:
		return strings.TrimSuffix(e.shown(), "}") + `,"ref":"` + e.key.String() + `"}`
	case adaptertest.HugeAnswer:
		return strings.TrimSuffix(e.shown(), "}") + `,"more":"` + strings.Repeat("x", 9<<20) + `"}`
	}
	return e.shown()
}

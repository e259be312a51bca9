package tests

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

const grantPartitions = 2

// grants is a job whose every window causes an effect.
const grants = `
apiVersion: tidemark/v1
kind: BusinessStream
name: grants
partitions: 2
key: [/user]
values:
  n: {path: /n, type: int}
eventTime:
  at@1: {path: /at, format: unix-ms}
---
apiVersion: tidemark/v1
kind: StreamTimePolicy
stream: grants
job: per-minute@1
sources: [{name: web, partitions: 1}]
timestampExtractor: at@1
watermark: {boundedOutOfOrderness: 2s}
window: {tumbling: 1m}
aggregates: {total: sum(n)}
allowedLateness: 24h
retention: {ids: 25h}
---
apiVersion: tidemark/v1
kind: EffectPolicy
name: grant@1
stream: grants
job: per-minute
effectType: grant
subject: key
when: value.total > 0
payload: {subject: key, amount: value.total}
adapter: provider@1
airlock: {windowOlderThan: 87600h}
---
apiVersion: tidemark/v1
kind: Adapter
name: provider@1
type: http
url: URL/v1/issue
allow: [127.0.0.0/8]
evidence: {key: /effectKey, amount: /amount, subject: /subject, ref: /id}
timeout: 500ms
sendWithin: 1s
grace: 1s
breaker: {consecutive: 1000, window: 10000, percent: 100, cooldown: 1s}
reject: [{status: 422, code: account_closed}]
throttle: [{status: 429}]
`

// What adapters may promise, and the flags of a simulator that keeps it.
const (
	idempotent = `
idempotency: {header: Idempotency-Key, retention: 24h, onBodyMismatch: error}
bodyMismatch: [{status: 422, code: idempotency_mismatch}]
inFlight: [{status: 409, code: in_flight}]
retry: {mode: auto, first: 200ms, most: 1s}
`
	queryable = `
query: {url: 'URL/v1/by-ref/{effectKey}', absence: authoritative, lateArrivalBound: 1800ms}
`
	unproven = `
sendUnproven: true
`
)

// rate bounds what is sent in a second.
func rate(perSecond int) string {
	return fmt.Sprintf("rate: {perSecond: %d, concurrency: 16}\n", perSecond)
}

// faultMix is what a provider may do to anybody.
const faultMix = "accept=60,lose-answer=7,execute-500=6,execute-502=3,redirect=2,half-body=2,garbage=2,drop=5,answer-503=4,delay:1s=3,hold:300ms=3,throttle=2,reject=1"

// effects is a mesh with an effector and a provider, each a process of its own.
type effects struct {
	*mesh
	conn     *natsio.Conn
	provider *provider
	effector *process
	http     string // address of the effector's HTTP API

	read [grantPartitions]uint64 // up to here, of each effects journal
	seen map[effect.EffectKey][]*effect.Record
}

// startEffects starts everything, with an adapter that promises more.
func startEffects(t *testing.T, promises string, flags ...string) *effects {
	t.Helper()
	e := &effects{mesh: newMesh(t, "", ""), http: fmt.Sprintf("127.0.0.1:%d", freePort(t)), seen: map[effect.EffectKey][]*effect.Record{}}
	for i, flag := range flags {
		flags[i] = strings.ReplaceAll(flag, "EFFECTOR", "http://"+e.http)
	}
	e.provider = newProvider(t, flags...)
	e.conn = e.connected()
	e.provider.begin()
	documents := strings.ReplaceAll(grants+promises, "URL", e.provider.url)
	if !strings.Contains(promises, "rate:") {
		documents += rate(100)
	}
	must(t, "apply", "-f", write(t, "grants.yaml", documents), "--server", e.url)
	var all []*process
	for _, verb := range []string{"ingest", "windower", "projector", "effector"} {
		var flags []string
		if verb == "effector" {
			flags = e.effectorFlags("")
		}
		e.effector = e.service(verb, verb, flags...)
		e.effector.start()
		all = append(all, e.effector)
	}
	for _, p := range all {
		p.ready()
	}
	return e
}

func (e *effects) effectorFlags(http string) []string {
	if http == "" {
		http = e.http
	}
	return []string{"--ask-first", "500ms", "--lease-ttl", "1s", "--http", http}
}

var grantsBegin = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC).UnixMilli()

// grant sends n events, each of a window of its own.
func (e *effects) grant(n int, flags ...string) {
	e.t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id":"e-%d","user":"user-%d","n":%d,"at":%d}`+"\n", i, i, 1+i%100, grantsBegin+int64(i%1000))
	}
	e.send(b.String(), flags...)
}

func (e *effects) send(lines string, flags ...string) {
	e.t.Helper()
	path := filepath.Join(e.t.TempDir(), "grants.jsonl")
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		e.t.Fatal(err)
	}
	e.up().must(append([]string{"send", path, "--stream", "grants", "--source", "web", "--partition", "0"}, flags...)...)
}

// histories answers every record of every effect, from the journals. It reads what was
// written since the last time.
func (e *effects) histories() map[effect.EffectKey][]*effect.Record {
	e.t.Helper()
	for pp := range grantPartitions {
		stream := subject.EffectsStream("grants", pp)
		last, err := journal.LastSeq(e.t.Context(), e.conn.JS, stream, "")
		if err == nil && last > e.read[pp] {
			err = journal.ReadRange(e.t.Context(), e.conn.JS, stream, 0, e.read[pp]+1, last, e.note)
			e.read[pp] = last
		}
		if err != nil {
			e.t.Fatal(err)
		}
	}
	return e.seen
}

func (e *effects) note(m journal.Msg) error {
	entry, err := journal.DecodeEntry(m.Seq, m.Data)
	if err != nil {
		return err
	}
	for _, data := range entry.Records {
		o, err := effectlog.DecodeOwned(data)
		if err != nil {
			return err
		}
		if o.Effect != nil {
			e.seen[o.Effect.Key] = append(e.seen[o.Effect.Key], o.Effect)
		}
	}
	return nil
}

// states answers how many effects are in each state.
func (e *effects) states() map[effect.State]int {
	e.t.Helper()
	states := map[effect.State]int{}
	for _, history := range e.histories() {
		states[history[len(history)-1].State]++
	}
	return states
}

// settled are states that nothing automatic leads out of.
func settled(s effect.State) bool {
	return slices.Contains([]effect.State{effect.Acked, effect.Reconciled, effect.Rejected, effect.Manual, effect.CompensationRequired}, s)
}

// settle waits until n effects are settled.
func (e *effects) settle(n int, within time.Duration) {
	e.t.Helper()
	// Between two looks, longer for more effects: a look reads every history.
	for end := time.Now().Add(within); ; time.Sleep(min(time.Duration(n), 2000) * time.Millisecond) {
		states, done := e.states(), 0
		for state, count := range states {
			if settled(state) {
				done += count
			}
		}
		if done == n {
			e.t.Logf("settled: %v", states)
			return
		}
		if time.Now().After(end) {
			e.t.Fatalf("after %v %d of %d effects are settled: %v\n%s", within, done, n, states, e.effector.log)
		}
	}
}

// judge compares what the ledger says with what the provider did: n effects, each once in
// the journals, each history by the rules, none executed twice, and none called applied
// or not applied that is not.
func (e *effects) judge(n int) map[effect.State]int {
	e.t.Helper()
	counts, histories := e.provider.counts(), e.histories()
	states, users := map[effect.State]int{}, map[string]bool{}
	for key, history := range histories {
		last, err := ledger.Replay(history)
		if err != nil {
			e.t.Errorf("%s: %v", key, err)
			continue
		}
		states[last.State]++
		users[last.Identity.Key] = true
		ran := counts[key.String()].Executions
		delete(counts, key.String())
		switch {
		case ran > 1:
			e.t.Errorf("%s was executed %d times", key, ran)
		case last.Outcome == effect.Applied && ran != 1, last.Outcome == effect.NotApplied && ran != 0:
			e.t.Errorf("%s is %s, %s, and was executed %d times", key, last.State, last.Outcome, ran)
		}
	}
	if len(histories) != n || len(users) != n {
		e.t.Errorf("%d effects of %d users, want %d", len(histories), len(users), n)
	}
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		e.t.Errorf("the provider executed %s, of which the ledger knows nothing", key)
	}
	check(e.t, run(e.t, "provider-sim", "log", e.provider.log), 0, "none carried out more than once")
	return states
}

// killEffector kills the effector at random moments, rounds times.
func (e *effects) killEffector(rounds int, random *rand.Rand) {
	e.t.Helper()
	for range rounds {
		time.Sleep(time.Duration(100+random.IntN(500)) * time.Millisecond) // the random moment itself
		e.effector.kill()
		e.effector.start()
		if random.IntN(2) == 0 { // else the next kill falls into the recovery
			e.effector.ready()
		}
	}
	e.effector.ready()
}

// kill -9 of the effector at random moments, and a provider that does all it can do to its
// callers: the provider's log has no key twice, and every effect ends where only a person
// or nobody has to do with it.
func TestEffectsOutliveKillsAndFaults(t *testing.T) {
	for _, p := range providers {
		t.Run(p.name, func(t *testing.T) { effectsUnderFaults(t, 80, 3, 5, p.promises, p.flags...) })
	}
}

// providers are what an adapter promises, with a simulator that keeps it and no more.
var providers = []struct {
	name, promises string
	flags          []string
}{
	{"idempotent and queryable", idempotent + queryable, nil},
	{"only queryable", queryable, []string{"--no-idempotency"}},
	{"no promises", unproven, []string{"--no-idempotency"}},
}

func effectsUnderFaults(t *testing.T, n, rounds int, seed uint64, promises string, flags ...string) {
	t.Helper()
	perSecond := max(50, n/60) // slow enough for kills to fall into the middle of it
	e := startEffects(t, promises+rate(perSecond), append([]string{"--mode", faultMix, "--seed", fmt.Sprint(seed)}, flags...)...)
	e.grant(n, "--finish")
	e.provider.await("the first request comes", func() bool { return e.provider.requests() > 0 })
	e.killEffector(rounds, rand.New(rand.NewPCG(seed, 1)))
	e.settle(n, time.Minute+time.Duration(n)*50*time.Millisecond)
	e.provider.await("no request is held", func() bool {
		for _, c := range e.provider.counts() {
			if c.Held > 0 {
				return false
			}
		}
		return true
	})
	states, cut := e.judge(n), 0
	for _, history := range e.histories() {
		if slices.ContainsFunc(history, func(r *effect.Record) bool { return r.Step.Name == "lost" }) {
			cut++
		}
	}
	t.Logf("%v; %d had an attempt that a kill cut off", states, cut)
}

// Every window has its effect once. A late event that contradicts what ran opens a
// correction; nothing is sent again.
func TestALateEventCorrectsAndSendsNothing(t *testing.T) {
	e := startEffects(t, idempotent+queryable)
	e.grant(20)
	event := func(id, user string, n int, at time.Duration) string {
		return fmt.Sprintf(`{"id":%q,"user":%q,"n":%d,"at":%d}`+"\n", id, user, n, grantsBegin+at.Milliseconds())
	}
	e.send(event("later", "user-1", 1, 5*time.Minute))
	e.settle(20, 30*time.Second)
	if states := e.judge(20); states[effect.Acked] != 20 {
		t.Errorf("%v", states)
	}
	e.send(event("late", "user-0", 50, time.Second))
	e.provider.await("the correction is open", func() bool { return e.states()[effect.CompensationRequired] == 1 })
	e.judge(20)
	if n := e.provider.requests(); n != 20 {
		t.Errorf("%d requests of 20 effects", n)
	}
}

// The only proof that is left of a lost answer is the provider's receipt.
func TestASignedReceiptSettlesALostAnswer(t *testing.T) {
	secret := write(t, "secret", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX\n")
	e := startEffects(t, unproven+"receipts: {secretFile: "+secret+"}\n",
		"--no-idempotency", "--mode", "lose-answer", "--receipts-to", "EFFECTOR/receipts/grants/provider", "--receipts-secret-file", secret)
	e.grant(10, "--finish")
	e.provider.await("every effect is reconciled", func() bool { return e.states()[effect.Reconciled] == 10 })
	e.judge(10)
}

// While a pause holds nothing reaches the provider; afterwards everything does, once.
func TestNothingIsSentWhileAGateIsPaused(t *testing.T) {
	e := startEffects(t, idempotent+queryable+rate(1000)) // a tenth of it after a pause
	must(t, "gate", "pause", "grants", "--reason", "test", "--yes", "--server", e.url)
	e.grant(50, "--finish")
	e.provider.await("every effect is prepared", func() bool { return len(e.histories()) == 50 })
	if n := len(e.provider.counts()); n != 0 {
		t.Errorf("%d effects were sent", n)
	}
	must(t, "gate", "resume", "grants", "--reason", "test", "--yes", "--server", e.url)
	e.provider.await("some are sent", func() bool { return len(e.provider.counts()) > 5 })
	must(t, "gate", "pause", "grants", "--reason", "test", "--yes", "--server", e.url)
	before := e.provider.requests()
	e.effector.kill() // and a new owner does not open it
	e.effector.start()
	e.effector.ready()
	if after := e.provider.requests(); after != before {
		t.Errorf("%d requests came behind the pause", after-before)
	}
	must(t, "gate", "resume", "grants", "--reason", "test", "--yes", "--server", e.url)
	e.settle(50, 30*time.Second)
	e.judge(50)
}

// An owner that stood still while another took over wakes up, and sends nothing that the
// other one has sent.
func TestAFrozenOwnerSendsNothingAgain(t *testing.T) {
	e := startEffects(t, unproven, "--no-idempotency", "--mode", "delay:100ms")
	e.grant(100, "--finish")
	e.provider.await("some are sent", func() bool { return len(e.provider.counts()) > 10 })
	e.effector.signal(syscall.SIGSTOP)
	second := e.service("effector", "effector-2", e.effectorFlags("127.0.0.1:0")...)
	second.start()
	second.says("effector: owning")
	e.effector.signal(syscall.SIGCONT)
	e.settle(100, time.Minute)
	e.judge(100)
}

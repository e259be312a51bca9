//go:build heavy

package tests

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
	"github.com/tidemark-mesh/tidemark/pkg/subscribe"
)

var (
	chaosRounds = flag.Int("chaos.rounds", 220, "rounds of TestChaos")
	chaosSeed   = flag.Uint64("chaos.seed", 0, "seed of TestChaos; 0 = another one each time")
)

const (
	chaosPartitions = 3  // source partitions, a sender each
	checkEvery      = 20 // rounds
	zombieEvery     = 9
)

// chaos is one run: real processes, senders, and a subscriber that watches all the time.
type chaos struct {
	*mesh
	random   *rand.Rand
	conn     *natsio.Conn
	services map[string]*process // by verb
	standby  map[string]*process // a second owner, while a zombie round lasts
	senders  []*sender
	watcher  *watcher
	killed   map[string]int
	zombies  int
}

// kill -9 of one, two or all of nats-server, ingest, windower and projector at random
// moments while events flow, with rounds in which a frozen owner is replaced and comes
// back: rows are the plain computation's, verify is green, nothing acknowledged is lost,
// revisions never go backward.
func TestChaos(t *testing.T) {
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed: -chaos.seed %d -chaos.rounds %d", seed, *chaosRounds)
	c := startChaos(t, seed)
	for round := 1; round <= *chaosRounds; round++ {
		what := ""
		if round%zombieEvery == 0 {
			what = c.zombie()
		} else {
			what = c.killRound()
		}
		c.watcher.check()
		if round%5 == 0 {
			t.Logf("round %d: %s; %d events acknowledged", round, what, c.acknowledged())
		}
		if round%checkEvery == 0 || round == *chaosRounds {
			c.check(round)
		}
	}
	t.Logf("%d rounds, killed %v, %d zombies, %d events acknowledged, %d sent again, %d revisions watched",
		*chaosRounds, c.killed, c.zombies, c.acknowledged(), c.repeated(), c.watcher.count())
	for verb, p := range c.services {
		if code, took := p.stop(); code != 0 || took > 20*time.Second {
			t.Errorf("%s ended with %d after %v of SIGTERM\n%s", verb, code, took, p.log)
		}
	}
}

func startChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	c := &chaos{
		mesh: newMesh(t, "", ""), random: rand.New(rand.NewPCG(seed, 1)),
		services: map[string]*process{}, standby: map[string]*process{}, killed: map[string]int{},
	}
	c.conn = c.connected()
	must(t, "apply", "-f", write(t, "clicks.yaml", strings.Replace(crashDocuments, "partitions: 2}", "partitions: 3}", 1)), "--server", c.url)
	for _, verb := range []string{"ingest", "windower", "projector"} {
		c.services[verb] = c.service(verb, verb+"-a")
		c.services[verb].start()
	}
	for _, p := range c.services {
		p.ready()
	}
	for p := range chaosPartitions {
		s := &sender{c: c, partition: p, random: rand.New(rand.NewPCG(seed, uint64(p)+2)), gate: make(chan struct{}, 1)}
		s.gate <- struct{}{}
		c.senders = append(c.senders, s)
	}
	c.watcher = c.watch()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, s := range c.senders {
		running.Go(func() { s.run(ctx) })
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	return c
}

// killRound kills one, two or all processes at a random moment and starts them again.
func (c *chaos) killRound() string {
	time.Sleep(time.Duration(c.random.IntN(900)) * time.Millisecond) // the random moment itself
	all := []string{"nats-server", "ingest", "windower", "projector"}
	c.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	victims := all[:[]int{1, 1, 2, 2, 4}[c.random.IntN(5)]]
	for _, v := range victims {
		c.killed[v]++
		if v == "nats-server" {
			c.nats.kill()
		} else {
			c.services[v].kill()
		}
	}
	var orphaned []string
	for verb, p := range c.standby {
		p.kill()
		delete(c.standby, verb)
		orphaned = append(orphaned, verb)
	}
	c.revive()
	for _, verb := range orphaned { // else the round would be spent on waiting for silence
		c.expire(verb)
	}
	if c.random.IntN(2) == 0 { // else the next kill falls into the recovery
		for _, p := range c.services {
			p.ready()
		}
	}
	return "killed " + strings.Join(victims, ", ")
}

// revive starts whatever does not run: a service whose first connection failed ends by itself.
func (c *chaos) revive() {
	if !c.nats.running() {
		c.nats.start()
		c.connected().Close()
	}
	for _, p := range c.services {
		if !p.running() {
			p.start()
		}
	}
}

// zombie freezes the owner of a role, lets a second process take over, and wakes the
// first one up again: for a while both believe that they own.
func (c *chaos) zombie() string {
	c.zombies++
	verb := []string{"ingest", "windower", "projector"}[c.random.IntN(3)]
	owner := c.services[verb]
	owner.ready()
	second := c.service(verb, fmt.Sprintf("%s-%d", verb, c.zombies))
	second.start()
	second.ready()
	owner.signal(syscall.SIGSTOP)
	if c.random.IntN(4) > 0 {
		c.expire(verb) // instead of waiting until the lease has fallen silent
	}
	c.owned(verb, second)
	owner.signal(syscall.SIGCONT)
	if c.random.IntN(2) == 0 {
		c.expire(verb) // and now both race for it
	}
	time.Sleep(time.Duration(c.random.IntN(500)) * time.Millisecond)
	if c.random.IntN(2) == 0 {
		owner.kill() // the second goes on alone, under the first one's name from now on
		c.services[verb] = second
	} else {
		c.standby[verb] = second
	}
	return "zombie " + verb
}

// owned waits until a process has taken at least one partition over.
func (c *chaos) owned(verb string, p *process) {
	word := map[string]string{"ingest": "claimed", "windower": "windower: live", "projector": "projector: accepting"}[verb]
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if strings.Contains(p.log.String(), word) {
			return
		}
		if !p.running() {
			c.t.Fatalf("%s ended: %v\n%s", p.name, p.cmd.ProcessState, p.log)
		}
	}
	c.t.Fatalf("%s never took over\n%s", p.name, p.log)
}

// expire removes a role's leases, as if their holders had been silent for long enough.
func (c *chaos) expire(verb string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn := c.connected() // the senders' connection may just be coming back
	defer conn.Close()
	kv, err := conn.JS.KeyValue(ctx, subject.LeaseBucket)
	if err != nil {
		c.t.Fatal(err)
	}
	keys, err := kv.ListKeysFiltered(ctx, verb+".>")
	if err != nil {
		c.t.Fatal(err)
	}
	for key := range keys.Keys() {
		if err := kv.Delete(ctx, key); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *chaos) acknowledged() (n int) {
	for _, s := range c.senders {
		n += int(s.acked.Load())
	}
	return n
}

func (c *chaos) repeated() (n int) {
	for _, s := range c.senders {
		n += int(s.again.Load())
	}
	return n
}

// check stops the senders for a moment and compares everything.
func (c *chaos) check(round int) {
	c.t.Helper()
	begun := time.Now()
	for _, s := range c.senders {
		<-s.gate // its batch is acknowledged
	}
	defer func() {
		for _, s := range c.senders {
			s.gate <- struct{}{}
		}
	}()
	c.revive()
	for _, p := range c.services {
		p.ready()
	}
	// An owner that died took with it how far its last second reached: the watermark is
	// sure to stand at what the present owners were sent.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, s := range c.senders {
		s.turn(ctx)
	}
	if ctx.Err() != nil {
		c.t.Fatalf("round %d: a batch was not acknowledged within a minute\n%s", round, c.logs())
	}
	u := c.up()
	if r := run(c.t, "wait", "clicks", "--timeout", "100s", "--server", c.url); r.code != 0 {
		c.t.Fatalf("round %d: wait ended with %d: %s%s\n%s", round, r.code, r.out, r.err, c.logs())
	}
	got := u.windows("clicks")
	want, complete := c.expected()
	var bad []string
	for k, row := range got {
		w := want[k]
		if row.text("clicks") != fmt.Sprint(w[0]) || row.text("total") != fmt.Sprint(w[1]) {
			bad = append(bad, fmt.Sprintf("%s has %s clicks, total %s; want %d, %d", k, row.text("clicks"), row.text("total"), w[0], w[1]))
		}
	}
	missing := 0
	for k := range want {
		if _, have := got[k]; !have && complete(k) {
			missing++
			bad = append(bad, k+" is missing")
		}
	}
	if len(bad) > 0 {
		slices.Sort(bad)
		c.t.Fatalf("round %d: %d of %d windows are wrong, %d missing: %s\n%s", round, len(bad), len(want), missing, strings.Join(bad[:min(len(bad), 5)], "; "), c.logs())
	}
	if r := run(c.t, "verify", "clicks", "--server", c.url); r.code != 0 {
		c.t.Fatalf("round %d: verify ended with %d\n%s%s\n%s", round, r.code, r.out, r.err, c.logs())
	}
	c.watcher.reaches(got)
	c.t.Logf("round %d: %d windows equal, verify is green, %d revisions in order (%v)", round, len(got), c.watcher.count(), time.Since(begun).Round(time.Millisecond))
}

func (c *chaos) logs() string {
	var b strings.Builder
	for _, p := range c.services {
		text := p.log.String()
		fmt.Fprintf(&b, "--- %s\n%s\n", p.name, text[max(0, len(text)-4000):])
	}
	return b.String()
}

// expected is the plain computation over what was acknowledged. complete tells whether
// the window named by a row's key must have been published.
func (c *chaos) expected() (want map[string][2]int, complete func(string) bool) {
	want = map[string][2]int{}
	through := int64(1 << 62)
	for _, s := range c.senders {
		for _, e := range s.sent {
			k := e.row()
			want[k] = [2]int{want[k][0] + 1, want[k][1] + e.n}
		}
		through = min(through, s.high-2000)
	}
	return want, func(k string) bool {
		start, err := time.Parse(time.RFC3339, k[strings.LastIndexByte(k, ' ')+1:])
		return err == nil && start.UnixMilli()+60_000 <= through
	}
}

// watcher follows the revisions from the first to the last.
type watcher struct {
	t      *testing.T
	mu     sync.Mutex
	latest map[string]*revision.Revision // by projection
	rows   map[string]*revision.Revision // by "key start"
	n      int
	err    error
}

func (c *chaos) watch() *watcher {
	c.t.Helper()
	w := &watcher{t: c.t, latest: map[string]*revision.Revision{}, rows: map[string]*revision.Revision{}}
	conn := c.connected()
	ctx, cancel := context.WithCancel(context.Background())
	sub, err := subscribe.Open(ctx, conn.NC, subscribe.Options{Stream: "clicks", Job: "per-minute", Generation: 1})
	if err != nil {
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			b, err := sub.Next(ctx)
			if err != nil {
				if ctx.Err() == nil {
					w.fail(err)
				}
				return
			}
			for _, r := range b.Revisions {
				w.note(r)
			}
		}
	}()
	c.t.Cleanup(func() { cancel(); <-done; sub.Close() })
	return w
}

func (w *watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// note checks that r is the successor of what was seen before.
func (w *watcher) note(r *revision.Revision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	before := w.latest[r.ProjectionID]
	switch {
	case w.err != nil:
	case before == nil && r.Revision != 1:
		w.err = fmt.Errorf("%s begins with revision %d", r.ProjectionID, r.Revision)
	case before != nil && r.Revision != before.Revision+1:
		w.err = fmt.Errorf("%s: revision %d came after %d", r.ProjectionID, r.Revision, before.Revision)
	case before != nil && (r.Predecessor == nil || r.Predecessor.Digest != before.ComputeDigest()):
		w.err = fmt.Errorf("%s: revision %d names another predecessor than the one that was seen", r.ProjectionID, r.Revision)
	}
	w.latest[r.ProjectionID] = r
	w.rows[r.Key+" "+r.Window.Start.Time().UTC().Format(time.RFC3339)] = r
}

func (w *watcher) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

func (w *watcher) check() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		w.t.Fatalf("the subscriber: %v", w.err)
	}
}

// reaches waits until the subscriber has seen what queries show.
func (w *watcher) reaches(rows map[string]windowLine) {
	w.t.Helper()
	behind := func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		for k, row := range rows {
			if r := w.rows[k]; r == nil || r.Revision < row.Revision {
				return k
			}
		}
		return ""
	}
	for end := time.Now().Add(time.Minute); behind() != ""; time.Sleep(20 * time.Millisecond) {
		w.check()
		if time.Now().After(end) {
			w.t.Fatalf("the subscriber never saw the current revision of %s", behind())
		}
	}
	w.check()
}

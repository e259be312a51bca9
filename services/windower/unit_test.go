package windower

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// savedState reads what a checkpoint file says it stands at.
func savedState(t *testing.T, path string) (state saved, found bool) {
	t.Helper()
	store, err := checkpoint.Open(path, checkpointKind)
	must(t, err)
	defer store.Close()
	must(t, store.View(func(tx *checkpoint.Tx) (err error) {
		found, err = tx.Meta(stateKey, &state)
		return err
	}))
	return state, found
}

// recreate deletes and makes anew the windows journal.
func (w *world) recreate(pp int) {
	w.t.Helper()
	must(w.t, shared.conn.JS.DeleteStream(deadline(w.t), w.part(pp).windowsStream()))
	must(w.t, natsio.ProvisionPolicy(deadline(w.t), shared.conn.JS, w.bs.Name, w.pol.Job, 1, w.bs.Partitions, 1))
}

func TestResultsAndReplay(t *testing.T) {
	w := newWorld(t, 1)
	r := start(t, w.unit(0, w.dir))
	last := w.traffic(0, 0, 20, 40)
	r.reached(t, last+1)
	r.drain(t)
	first := w.same(0)
	if first.claims != 1 {
		t.Fatalf("%d claims", first.claims)
	}
	end := first.commits[len(first.commits)-1]
	if want := epoch.Add(20*hour - 1 - 5*60*1_000_000); end.W != want {
		t.Fatalf("W is %s, want %s", end.W, want)
	}
	t.Run("drain leaves a checkpoint at the last COMMIT", func(t *testing.T) {
		state, found := savedState(t, w.part(0).file(w.dir))
		c, err := revision.ParseCommit(state.Commit)
		if !found || err != nil || c.Hash() != end.Hash() {
			t.Fatalf("found %v, at sequence %d, %v", found, state.Seq, err)
		}
	})
	t.Run("a fresh journal gets the identical sequence of records", func(t *testing.T) {
		w.recreate(0)
		r := start(t, w.unit(0, t.TempDir()))
		r.reached(t, last+1)
		r.drain(t)
		again := w.same(0)
		if got := again.commits[len(again.commits)-1]; got.RecordsDigest != end.RecordsDigest || got.IDDigest != end.IDDigest {
			t.Fatal("the digests differ")
		}
	})
}

func TestNothingMovesNothingIsCommitted(t *testing.T) {
	w := newWorld(t, 1)
	r := start(t, w.unit(0, w.dir))
	r.reached(t, w.traffic(0, 0, 2, 3)+1)
	before := len(w.read(0).commits)
	timer := time.NewTimer(3 * movedFor)
	<-timer.C
	if after := len(w.read(0).commits); after != before {
		t.Fatalf("%d commits were made of nothing", after-before)
	}
	// A frame without any output moves the position, and that alone.
	r.reached(t, w.events(0, w.order("key-1", epoch.Add(2*hour), 5))+1)
	after := w.read(0)
	if n := len(after.commits); n != before+1 || after.commits[n-1].Records != after.commits[before-1].Records {
		t.Fatalf("%d commits, want one more than %d", n, before)
	}
	r.drain(t)
}

// TestCrashes ends a unit at random moments, with its checkpoint file kept, lost, damaged
// or replaced by an older copy. The sequence of records must not change.
func TestCrashes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	w := newWorld(t, 1)
	file := w.part(0).file(w.dir)
	old := file + ".copy"
	var last uint64
	for round := range 24 {
		u := w.unit(0, w.dir)
		r := start(t, u)
		for range 1 + rng.IntN(3) {
			last = w.traffic(0, round*4+rng.IntN(4), 1, 60)
		}
		until := last - uint64(rng.IntN(4))
		await(t, "progress", func() bool {
			c := u.accepted()
			return c != nil && c.Inputs[0].Seq >= until-min(until, uint64(rng.IntN(6)))
		})
		r.crash(t)
		switch round % 6 {
		case 1:
			must(t, os.Remove(file))
		case 2:
			copyFile(t, file, old)
		case 3:
			must(t, os.WriteFile(file, bytes.Repeat([]byte{1}, 70000), 0o600))
		case 5:
			copyFile(t, old, file)
		}
	}
	r := start(t, w.unit(0, w.dir))
	r.reached(t, last+1)
	r.drain(t)
	books := w.same(0)
	if books.claims != 25 {
		t.Fatalf("%d claims, want 25", books.claims)
	}
}

// TestMarkOverManyCommits closes many windows with one mark and crashes between its commits.
func TestMarkOverManyCommits(t *testing.T) {
	w := newWorld(t, 1)
	const keys = 6000
	for k := 0; k < keys; k += 500 {
		var events []*envelope.Event
		for i := range 500 {
			events = append(events, w.order(fmt.Sprintf("key-%d", k+i), epoch.Add(int64(i)), 1))
		}
		w.events(0, events...)
	}
	last := w.mark(0, epoch.Add(2*hour))
	between := 0
	for range 15 {
		u := w.unit(0, w.dir)
		u.cut = 8 << 10 // more commits than can be in flight
		r := start(t, u)
		from := uint64(len(w.read(0).records))
		await(t, "a commit", func() bool { c := u.accepted(); return c != nil && (c.Records > from || c.Inputs[0].Seq > last) })
		r.crash(t)
		if b := w.read(0); b.commits[len(b.commits)-1].Inputs[0].Outputs > 0 {
			between++
		}
	}
	r := start(t, w.unit(0, w.dir))
	r.reached(t, last+1)
	r.drain(t)
	b := w.same(0)
	cut := 0
	for _, c := range b.commits {
		if c.Inputs[0].Outputs > 0 {
			cut++
			if c.W != envelope.MinEventTime {
				t.Fatalf("a COMMIT inside the mark's outputs says W %s", c.W)
			}
		}
	}
	if len(b.records) != keys || cut < 3 || between == 0 {
		t.Fatalf("%d records, %d commits inside the mark, %d crashes there", len(b.records), cut, between)
	}
}

func TestZombie(t *testing.T) {
	w := newWorld(t, 1)
	first := start(t, w.unit(0, w.dir))
	first.reached(t, w.traffic(0, 0, 3, 5)+1)
	second := start(t, w.unit(0, t.TempDir()))
	second.reached(t, 1) // it is live, the first one knows nothing of it
	last := w.traffic(0, 3, 3, 5)
	second.reached(t, last+1)
	if err := first.end(t); err != nil {
		t.Fatalf("the first owner must step back without harm, got %v", err)
	}
	second.drain(t)
	w.same(0)
}

// wantHalt waits for the unit to end with damage that mentions every part.
func wantHalt(t *testing.T, r *running, parts ...string) {
	t.Helper()
	err := r.end(t)
	if err == nil || !halts(err) {
		t.Fatalf("got %v, want a halt", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not say %q: %v", part, err)
		}
	}
}

// forge appends one COMMIT to the windows journal as an owner would.
func (w *world) forge(pp int, change func(records [][]byte, c *revision.Commit)) {
	w.t.Helper()
	u := w.unit(pp, "")
	writer, head, err := journal.ClaimWriter(deadline(w.t), shared.conn.JS, journal.Settings{
		Stream: u.part.windowsStream(), Subject: u.part.windowsSubject(), Owner: "forger", CoreVersion: 1,
	})
	must(w.t, err)
	if head.Commit != nil {
		w.t.Fatal("forge into a fresh journal")
	}
	id, err := journal.Identify(deadline(w.t), shared.conn.JS, u.part.eventsStream())
	must(w.t, err)
	records := w.want(pp)
	c := revision.NewCommit()
	c.Inputs = []revision.InputPosition{{Stream: id.Stream, Created: id.Created, Seq: uint64(len(w.frames[pp]) + 1)}}
	change(records, &c)
	pending, err := writer.Commit(deadline(w.t), records, c)
	must(w.t, err)
	<-pending.Done()
	_, err = pending.Result()
	must(w.t, err)
	must(w.t, writer.Close())
}

func sealed(records [][]byte, c *revision.Commit) {
	c.Records, c.RecordsDigest = uint64(len(records)), revision.Digest{}
	for _, record := range records {
		c.RecordsDigest = chainOver(c.RecordsDigest, record)
	}
}

func TestTamperedJournals(t *testing.T) {
	t.Run("a record that the core does not make", func(t *testing.T) {
		w := newWorld(t, 1)
		last := w.traffic(0, 0, 3, 5)
		w.forge(0, func(records [][]byte, c *revision.Commit) {
			records[1][len(records[1])-1] ^= 1
			sealed(records, c)
		})
		u := w.unit(0, w.dir)
		wantHalt(t, start(t, u), "recordsDigest", fmt.Sprintf("%d/0/0", last+1), "COMMIT at sequence 9", "start a new generation")
	})
	t.Run("a record that its COMMIT was not made over", func(t *testing.T) {
		w := newWorld(t, 1)
		last := w.traffic(0, 0, 3, 5)
		w.forge(0, func(records [][]byte, c *revision.Commit) {
			sealed(records, c)
			records[1][len(records[1])-1] ^= 1
		})
		wantHalt(t, start(t, w.unit(0, w.dir)), "sequence 9", fmt.Sprintf("%d/0/0", last+1))
	})
	t.Run("a position that the core never has", func(t *testing.T) {
		w := newWorld(t, 1)
		w.traffic(0, 0, 3, 5)
		w.forge(0, func(records [][]byte, c *revision.Commit) {
			sealed(records, c)
			c.Inputs[0].Seq--
			c.Inputs[0].Outputs = 900
		})
		wantHalt(t, start(t, w.unit(0, w.dir)), "never stands at 6/0/900")
	})
}

func TestDamagedEventsJournals(t *testing.T) {
	t.Run("missing frame", func(t *testing.T) {
		w := newWorld(t, 1)
		w.traffic(0, 0, 2, 5)
		w.frame(0, envelope.Record{Event: w.order("key-1", epoch, 1)}) // never written
		good := w.same0(t)
		w.mark(0, epoch.Add(9*hour))
		u := w.unit(0, w.dir)
		r := start(t, u)
		await(t, "a problem", func() bool { return u.trouble() != "" })
		for _, part := range []string{"missing", "frames 5 to 5", "writer-1", "tidemark source gap " + w.bs.Name} {
			if !strings.Contains(u.trouble(), part) {
				t.Errorf("the problem %q does not say %q", u.trouble(), part)
			}
		}
		await(t, "what was decided before is committed", func() bool { return len(w.read(0).records) == good })
		r.drain(t)
	})
	t.Run("no frame", func(t *testing.T) {
		w := newWorld(t, 1)
		w.traffic(0, 0, 2, 5)
		w.write(0, []byte{0xff, 0xff, 0xff})
		wantHalt(t, start(t, w.unit(0, w.dir)), "sequence 5", "cannot be read")
	})
	t.Run("recreated while away", func(t *testing.T) {
		w := newWorld(t, 1)
		r := start(t, w.unit(0, w.dir))
		r.reached(t, w.traffic(0, 0, 2, 5)+1)
		r.drain(t)
		must(t, shared.conn.JS.DeleteStream(deadline(t), w.part(0).eventsStream()))
		must(t, natsio.ProvisionStream(deadline(t), shared.conn.JS, w.bs.Name, 1, 1))
		wantHalt(t, start(t, w.unit(0, w.dir)), "created", "new generation")
	})
}

// gap appends an operator's GAP record.
func (w *world) gap(pp int, first, last uint64) uint64 {
	w.t.Helper()
	data, err := envelope.AppendFrame(nil, &envelope.Frame{Records: []envelope.Record{
		{Gap: &envelope.Gap{Writer: "writer-1", First: first, Last: last, Reason: "test"}},
	}})
	must(w.t, err)
	ack, err := shared.conn.JS.Publish(deadline(w.t), subject.Events(w.bs.Name, pp), data)
	must(w.t, err)
	return ack.Sequence
}

// A mark waits for the GAP records that cover what is missing before it, however many
// there are and wherever they stand behind it; a replay takes the same way.
func TestGapBehindTheMark(t *testing.T) {
	w := newWorld(t, 1)
	w.traffic(0, 0, 2, 5) // frames 1 to 4
	for range 4 {
		w.frame(0, envelope.Record{Event: w.order("lost", epoch, 1)}) // 5 to 8: never written
	}
	w.events(0, w.order("key-1", epoch.Add(3*hour), 700)) // 9
	w.frame(0, envelope.Record{Event: w.order("lost", epoch, 1)})
	stop := w.mark(0, epoch.Add(9*hour)) // 11, of which 5 to 8 and 10 are missing
	u := w.unit(0, w.dir)
	r := start(t, u)
	await(t, "a problem", func() bool { return strings.Contains(u.trouble(), "frames 5 to 8") })
	w.gap(0, 7, 8)
	late := w.mark(0, epoch.Add(10*hour)) // behind the mark that waits
	w.gap(0, 5, 6)
	await(t, "the other hole", func() bool { return strings.Contains(u.trouble(), "frames 10 to 10") })
	// A process that takes over in the middle stands before the same mark.
	r.crash(t)
	u = w.unit(0, w.dir)
	r = start(t, u)
	await(t, "the other hole again", func() bool { return strings.Contains(u.trouble(), "frames 10 to 10") })
	last := w.gap(0, 10, 12)
	r.reached(t, last+1)
	if u.trouble() != "" {
		t.Errorf("it goes on and still says %q", u.trouble())
	}
	r.drain(t)
	first := w.read(0)
	if at := first.commits[len(first.commits)-1].Inputs[0]; stop >= at.Seq || late >= at.Seq {
		t.Fatalf("committed up to %d, the marks are at %d and %d", at.Seq, stop, late)
	}
	w.recreate(0)
	r = start(t, w.unit(0, t.TempDir()))
	r.reached(t, last+1)
	r.drain(t)
	again := w.read(0)
	if len(first.records) == 0 || len(again.records) != len(first.records) {
		t.Fatalf("%d records, %d in a replay", len(first.records), len(again.records))
	}
	for i := range first.records {
		if !bytes.Equal(first.records[i], again.records[i]) {
			t.Fatalf("record %d differs in a replay", i)
		}
	}
}

// same0 answers how many records the frames written so far make.
func (w *world) same0(t *testing.T) int {
	t.Helper()
	return len(w.want(0))
}

func TestCheckpointAheadOfARecreatedWindowsJournal(t *testing.T) {
	w := newWorld(t, 1)
	last := w.traffic(0, 0, 4, 10)
	r := start(t, w.unit(0, w.dir))
	r.reached(t, last+1)
	r.drain(t)
	w.recreate(0)
	r = start(t, w.unit(0, w.dir))
	r.reached(t, last+1)
	r.drain(t)
	w.same(0)
	if _, err := os.Stat(w.part(0).file(w.dir) + ".stale-1"); err != nil {
		t.Fatalf("the checkpoint of the old journal must be set aside: %v", err)
	}
}

func TestCheckpointThatDoesNotFit(t *testing.T) {
	cases := map[string]func(s *saved){
		"ahead of the journal": func(s *saved) { s.Seq += 1000 },
		"another policy":       func(s *saved) { s.PolicyDigest = "other" },
		"another core":         func(s *saved) { s.CoreVersion++ },
		"another COMMIT": func(s *saved) {
			s.Commit = json.RawMessage(strings.Replace(string(s.Commit), `"epoch":1`, `"epoch":2`, 1))
		},
		"no COMMIT": func(s *saved) { s.Commit = json.RawMessage(`{}`) },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			r := start(t, w.unit(0, w.dir))
			r.reached(t, w.traffic(0, 0, 2, 5)+1)
			r.drain(t)
			file := w.part(0).file(w.dir)
			store, err := checkpoint.Open(file, checkpointKind)
			must(t, err)
			must(t, store.Update(func(tx *checkpoint.Tx) error {
				var s saved
				if _, err := tx.Meta(stateKey, &s); err != nil {
					return err
				}
				change(&s)
				return tx.SetMeta(stateKey, s)
			}))
			must(t, store.Close())
			r = start(t, w.unit(0, w.dir))
			r.reached(t, w.traffic(0, 2, 2, 5)+1)
			r.drain(t)
			w.same(0)
			if _, err := os.Stat(file + ".stale-1"); err != nil {
				t.Fatal("it must be set aside")
			}
		})
	}
}

func TestForeignCheckpointFileIsLeftAlone(t *testing.T) {
	w := newWorld(t, 1)
	store, err := checkpoint.Open(w.part(0).file(w.dir), checkpoint.Kind{Name: "other", Format: 1})
	must(t, err)
	must(t, store.Close())
	if err := start(t, w.unit(0, w.dir)).end(t); !errors.Is(err, checkpoint.ErrForeign) || !halts(err) {
		t.Fatalf("got %v", err)
	}
}

func TestOtherCoreVersionIsRefused(t *testing.T) {
	w := newWorld(t, 1)
	u := w.unit(0, w.dir)
	u.coreVersion = 99
	u.run(context.Background())
	if got := u.trouble(); !strings.Contains(got, "99") || !strings.Contains(got, "tidemark rollout start") {
		t.Fatalf("problem %q", got)
	}
}

func TestStatus(t *testing.T) {
	w := newWorld(t, 1)
	u := w.unit(0, w.dir)
	stop := u.serveStatus()
	defer stop()
	r := start(t, u)
	w.events(0, w.order("eu west", epoch.Add(5), 250), w.order("eu west", epoch.Add(6), 250))
	r.reached(t, w.mark(0, epoch.Add(10))+1)
	ask := func(body string) (a answer, raw string) {
		t.Helper()
		m, err := shared.conn.NC.Request(u.part.statusSubject(), []byte(body), 10*time.Second)
		must(t, err)
		must(t, json.Unmarshal(m.Data, &a))
		return a, string(m.Data)
	}
	a, raw := ask(`{"key":"eu west","at":"2026-11-30T10:59:59.999999Z"}`)
	if a.Role != roleLive || a.Window == nil || a.Window.Events != 2 || a.Window.State != revision.Open || a.Sizes.Windows != 1 ||
		len(a.Partitions) != 1 || a.W != epoch.Add(10-5*60*1_000_000) || a.Committed == nil || a.Committed.W != a.W {
		t.Fatalf("answer %s", raw)
	}
	if a, raw = ask(``); a.Window != nil || a.Halted != "" {
		t.Fatalf("answer %s", raw)
	}
	if _, raw = ask(`{"key":`); !strings.Contains(raw, "bad-request") {
		t.Fatalf("answer %s", raw)
	}
	r.drain(t)
	u.halt(errors.New("what happened"))
	if a, raw = ask(``); a.Halted != "what happened" || a.Role != roleHalted {
		t.Fatalf("answer %s", raw)
	}
}

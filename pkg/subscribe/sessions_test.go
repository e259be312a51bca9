package subscribe_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
	"github.com/tidemark-mesh/tidemark/pkg/subscribe"
)

const minute = hour / 60

// session answers the message of the next revision of a session of key k, from one
// minute after base to another.
func (f *feed) session(op revision.Op, from, to int, change func(*revision.Revision)) journal.Message {
	name := sessionName(from, to)
	r := &revision.Revision{
		Stream: f.stream, Job: "hourly", PolicyGeneration: "hourly@1", PolicyDigest: strings.Repeat("ab", 32), Key: "k",
		Window:          revision.Window{Start: base + envelope.EventTime(from)*minute, End: base + envelope.EventTime(to)*minute},
		LogicalWindowID: strings.Repeat("cd", 32), ProjectionID: sessionID(from, to),
		Op: op, Revision: 1, State: revision.Corrected, Firing: revision.FiringLate, ValueChanged: true, Cause: revision.CauseLateEvent, Epoch: f.writer.Epoch(),
		Watermark: revision.Watermark{At: base + hour, Data: base + hour},
	}
	if op == revision.Upsert {
		r.Value, r.Inputs = []revision.Field{{Name: "orders", Text: "1"}}, revision.Inputs{First: 1, Last: 1, Events: 1}
	}
	if head := f.heads[name]; head != nil {
		r.Revision, r.Predecessor = head.Revision+1, head
	}
	change(r)
	f.heads[name] = &revision.Predecessor{Revision: r.Revision, Digest: r.ComputeDigest()}
	return journal.Message{
		Subject: subject.Revision(f.stream, "hourly", 1, 0, "k"),
		Header:  nats.Header{subject.HeaderSchema: []string{revision.Schema}},
		Data:    r.AppendJSON(nil),
	}
}

func sessionName(from, to int) string { return fmt.Sprintf("%d-%d", from, to) }

func sessionID(from, to int) string { return fmt.Sprintf("%064x", sessionName(from, to)) }

// replace answers the group in which the sessions gone become one.
func (f *feed) replace(gone [][2]int, from, to int) (group []journal.Message) {
	var names []revision.Supersession
	for _, old := range gone {
		group = append(group, f.session(revision.Retract, old[0], old[1], func(r *revision.Revision) {
			r.SupersededBy = sessionID(from, to)
			names = append(names, revision.Supersession{ProjectionID: r.ProjectionID, Revision: r.Revision})
		}))
	}
	return append(group, f.session(revision.Upsert, from, to, func(r *revision.Revision) { r.Supersedes = names }))
}

func plain(*revision.Revision) {}

// applied is what a consumer holds of key k that applies batches whole.
type applied map[string]bool

func (a applied) take(b *subscribe.Batch) {
	for _, r := range b.Revisions {
		if r.Key != "k" {
			continue
		}
		name := sessionName(int((r.Window.Start-base)/minute), int((r.Window.End-base)/minute))
		if a[name] = r.Op == revision.Upsert; !a[name] {
			delete(a, name)
		}
	}
}

func (a applied) String() string { return strings.Join(slices.Sorted(maps.Keys(a)), " ") }

// Two sessions become one and part again, over and over, while connections break, other
// keys come between, and prefixes without a COMMIT lie about: after every batch a consumer
// holds the two or the one.
func TestGroupsAreHandedOverWholeOverReconnects(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	f.alias(1, 1)
	f.accept(base+hour, f.session(revision.Upsert, 0, 11, plain), f.session(revision.Upsert, 20, 31, plain))
	const rounds = 60
	var readers sync.WaitGroup
	for _, key := range []string{"", "k"} {
		conn, err := server.Connect(f.ctx, t.Name())
		must(t, err)
		t.Cleanup(conn.Close)
		sub, err := subscribe.Open(f.ctx, conn.NC, subscribe.Options{Stream: f.stream, Job: "hourly", Key: key})
		must(t, err)
		t.Cleanup(sub.Close)
		done, stop := context.WithCancel(f.ctx)
		readers.Go(func() {
			defer stop()
			held := applied{}
			for turns := 0; turns < 2*rounds+1; {
				b, err := sub.Next(f.ctx)
				if err != nil {
					t.Errorf("key %q: %v", key, err)
					return
				}
				before := held.String()
				held.take(&b)
				if after := held.String(); after != "0-11 20-31" && after != "0-31" {
					t.Errorf("key %q: a consumer holds %q after %q", key, after, before)
					return
				} else if after != before {
					turns++
				}
			}
		})
		readers.Go(func() { // breaks the connection again and again
			ticker := time.NewTicker(100 * time.Millisecond)
			defer ticker.Stop()
			for {
				select {
				case <-done.Done():
					return
				case <-ticker.C:
					if err := conn.NC.ForceReconnect(); err != nil {
						t.Errorf("reconnect: %v", err)
					}
				}
			}
		})
	}
	for i := range rounds {
		merge := f.replace([][2]int{{0, 11}, {20, 31}}, 0, 31)
		if i%10 == 0 { // a projector that died inside the batch
			f.void(merge[0])
			f.void(merge[1])
			f.claim()
		}
		f.accept(base+hour, merge...)
		f.accept(base+hour, f.next("other", base))
		f.accept(base+hour, append(f.replace([][2]int{{0, 31}}, 0, 11), f.session(revision.Upsert, 20, 31, plain))...)
	}
	readers.Wait()
}

// A session is final when W has passed lateness and gap and no session is open before its
// end: the batch says so.
func TestStateOfSessions(t *testing.T) {
	t.Parallel()
	f := newFeed(t)
	f.alias(1, 1)
	rule := revision.Finality{Lateness: int64(hour), Gap: int64(11 * minute)}
	f.commit.OpenFrom = base + 5*minute
	f.accept(base+3*hour, f.session(revision.Upsert, 0, 11, plain))
	f.commit.OpenFrom = base + 11*minute
	f.accept(base + 3*hour)
	sub := f.open(subscribe.Options{Progress: true})
	first, err := sub.Next(f.ctx)
	must(t, err)
	second, err := sub.Next(f.ctx)
	must(t, err)
	r := first.Revisions[0]
	if got := first.State(r, rule); got != revision.Corrected {
		t.Errorf("while a session is open before its end it is %s", got)
	}
	if got := second.State(r, rule); got != revision.Finalized {
		t.Errorf("with none open before its end it is %s", got)
	}
}

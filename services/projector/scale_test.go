package projector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
	"github.com/tidemark-mesh/tidemark/pkg/subscribe"
)

// scaled is a projector among several, with a connection of its own.
type scaled struct {
	*Service
	conn *natsio.Conn
	stop context.CancelFunc
	done chan error
}

func startScaled(t *testing.T, dial func() *natsio.Conn, instance string) *scaled {
	t.Helper()
	conn := dial()
	s, err := New(Config{Conn: conn, Dir: t.TempDir(), Instance: instance, Log: zerolog.Nop(), Registry: prometheus.NewRegistry(), LeaseTTL: time.Second})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	p := &scaled{Service: s, conn: conn, stop: cancel, done: make(chan error, 1)}
	go func() { p.done <- s.Run(ctx) }()
	t.Cleanup(cancel)
	return p
}

func (p *scaled) owned(stream string) (n int) {
	st := p.stream(stream)
	if st == nil {
		return 0
	}
	for _, u := range st.units() {
		if u.state() == roleOwner {
			n++
		}
	}
	return n
}

func awaitOwners(t *testing.T, stream string, want map[*scaled]int) {
	t.Helper()
	begun := time.Now()
	eventually(t, func() string {
		for p, n := range want {
			if got := p.owned(stream); got != n {
				return fmt.Sprintf("%s accepts for %d partitions, want %d", p.cfg.Instance, got, n)
			}
		}
		return ""
	})
	t.Logf("moved within %s", time.Since(begun).Round(10*time.Millisecond))
}

// follow reads the feed until stop and answers the revisions of each window in order.
func follow(t *testing.T, conn *natsio.Conn, stream string) (stop func() map[string][]uint64) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	feed, err := subscribe.Open(ctx, conn.NC, subscribe.Options{Stream: stream, Job: "hourly"})
	must(t, err)
	seen := map[string][]uint64{}
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			b, err := feed.Next(ctx)
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("the feed ended: %v", err)
				}
				return
			}
			for _, r := range b.Revisions {
				seen[r.Key] = append(seen[r.Key], r.Revision)
			}
		}
	})
	return func() map[string][]uint64 {
		cancel()
		wait.Wait()
		return seen
	}
}

// Acceptance moves between processes that join, leave and die. The feed has every revision
// once and in order, and every query is answered.
func TestAcceptanceMoves(t *testing.T) {
	t.Parallel()
	dial := ownServer(t)
	conn := dial()
	stream, authors := apply(t, conn)
	keys := []string{keyOf(0), keyOf(1)}
	n := 0
	write := func() {
		n++
		for pp, a := range authors {
			a.write(base+hour, a.propose(keys[pp], base, n))
		}
	}
	accepted := func() {
		t.Helper()
		want := []string{fmt.Sprintf("%s/%d", keys[0], n), fmt.Sprintf("%s/%d", keys[1], n)}
		if keys[1] < keys[0] {
			want[0], want[1] = want[1], want[0]
		}
		awaitRows(t, conn, stream, want...)
	}
	a := startScaled(t, dial, "a")
	write()
	awaitOwners(t, stream, map[*scaled]int{a: 2})
	accepted()
	stopFeed := follow(t, conn, stream)
	asking, stopAsking := context.WithCancel(context.Background())
	asked := 0
	var readers sync.WaitGroup
	readers.Go(func() {
		for ; asking.Err() == nil; asked++ {
			m, err := conn.NC.Request(subject.Query(stream, "windows"), []byte(`{}`), 5*time.Second)
			if err != nil {
				t.Errorf("query %d: %v", asked, err)
				return
			}
			if words, problem := replyWords(m.Data); len(words) != 2 || problem != "" {
				t.Errorf("query %d: %v %s in %s", asked, words, problem, m.Data)
				return
			}
		}
	})
	writing, stopWriting := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(writing)
		for {
			select {
			case <-stopWriting:
				return
			case <-time.After(5 * time.Millisecond):
				write()
			}
		}
	}()
	b := startScaled(t, dial, "b")
	awaitOwners(t, stream, map[*scaled]int{a: 1, b: 1})
	c := startScaled(t, dial, "c")
	eventually(t, func() string { // three share two
		if a.owned(stream)+b.owned(stream)+c.owned(stream) != 2 || len(c.Problems()) > 0 {
			return "not yet"
		}
		return ""
	})
	a.stop()
	must(t, <-a.done)
	awaitOwners(t, stream, map[*scaled]int{b: 1, c: 1})
	stopAsking() // the one that is killed next takes a query with it
	readers.Wait()
	b.conn.Close()
	awaitOwners(t, stream, map[*scaled]int{c: 2})
	close(stopWriting)
	<-writing
	accepted()
	eventually(t, func() string { return gathered(conn.NC, stream, 1) })
	seen := stopFeed()
	for pp, key := range keys {
		// Once and in order, from the first on.
		for i := range seen[key] {
			if seen[key][i] != uint64(i+1) {
				t.Fatalf("key partition %d: revision %d comes as number %d", pp, seen[key][i], i+1)
			}
		}
		if len(seen[key]) == 0 || seen[key][len(seen[key])-1] != uint64(n) {
			t.Errorf("key partition %d: the feed ends before revision %d", pp, n)
		}
	}
	t.Logf("%d revisions a key, %d queries", n, asked)
}

// gathered says what the status of every process lacks: as many answers as want.
func gathered(nc *nats.Conn, stream string, want int) string {
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err.Error()
	}
	defer sub.Unsubscribe()
	if err := nc.PublishRequest(subject.Query(stream, "status"), inbox, nil); err != nil {
		return err.Error()
	}
	instances := map[string]bool{}
	for {
		m, err := sub.NextMsg(200 * time.Millisecond)
		if err != nil {
			break
		}
		var s struct {
			Instance string
			Ready    bool
		}
		if err := json.Unmarshal(m.Data, &s); err != nil {
			return err.Error()
		}
		instances[s.Instance] = s.Ready
	}
	if len(instances) != want {
		return fmt.Sprintf("status of %v", instances)
	}
	return ""
}

func TestEveryProcessAnswersForItself(t *testing.T) {
	t.Parallel()
	dial := ownServer(t)
	conn := dial()
	stream, _ := apply(t, conn)
	for _, instance := range []string{"a", "b", "c"} {
		p := startScaled(t, dial, instance)
		eventually(t, func() string { return fmt.Sprint(p.Problems())[1 : len(fmt.Sprint(p.Problems()))-1] })
	}
	eventually(t, func() string { return gathered(conn.NC, stream, 3) })
}

// Who is told that a process is not ready does not wait for it; so it must not become
// ready with views that are older than that answer.
func TestNotReadyIsAPromise(t *testing.T) {
	st := newStream(nil, "a")
	if !st.becomeReady() {
		t.Fatal("nobody asked, yet it is not ready")
	}
	st = newStream(nil, "a")
	if st.askReady() || st.becomeReady() {
		t.Fatal("it became ready behind the back of somebody who asked")
	}
	if !st.becomeReady() || !st.askReady() {
		t.Fatal("it never becomes ready")
	}
}

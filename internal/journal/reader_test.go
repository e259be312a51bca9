package journal

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// plain makes a journal-like stream and writes n messages that say 1…n.
func plain(t testing.TB, js jetstream.JetStream, n int) (stream, subj string) {
	t.Helper()
	bs := fmt.Sprintf("p%d", shared.serial.Add(1))
	must(t, natsio.ProvisionPolicy(deadline(t), js, bs, "job", 1, 1, 1))
	stream, subj = subject.WindowsStream(bs, "job", 1, 0), subject.Windows(bs, "job", 1, 0)
	for i := range n {
		put(t, js, subj, recordOf(uint64(i+1)), nil)
	}
	return stream, subj
}

func read(t testing.TB, js jetstream.JetStream, stream string, created int64, next uint64, filters ...string) *Reader {
	t.Helper()
	r, err := Read(deadline(t), js, stream, created, next, filters...)
	must(t, err)
	t.Cleanup(r.Close)
	return r
}

func take(t testing.TB, r *Reader, want uint64) Msg {
	t.Helper()
	m, err := r.Next(deadline(t))
	must(t, err)
	if m.Seq != want {
		t.Fatalf("got message %d, want %d", m.Seq, want)
	}
	return m
}

func TestReaderFollows(t *testing.T) {
	js := shared.conn.JS
	stream, subj := plain(t, js, 5)
	r := read(t, js, stream, 0, 3)
	if id := r.Identity(); id.Stream != stream || id.Created == 0 || id.Last != 5 {
		t.Fatalf("%+v", id)
	}
	if m := take(t, r, 3); m.Pending != 2 || m.Subject != subj || string(m.Data) != string(recordOf(3)) || m.Time.IsZero() {
		t.Fatalf("%+v", m)
	}
	take(t, r, 4)
	take(t, r, 5)
	if _, ok, err := r.TryNext(); ok || err != nil {
		t.Fatalf("a sixth message: %v", err)
	}
	put(t, js, subj, nil, nil)
	take(t, r, 6)
	waited, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := r.Next(waited)
	wantIs(t, err, context.DeadlineExceeded)
	put(t, js, subj, nil, nil)
	if m := <-r.C(); m.Seq != 7 {
		t.Fatalf("message %d on C", m.Seq)
	}
	r.Close()
	if _, open := <-r.C(); open {
		t.Fatal("C is open after Close")
	}
	wantIs(t, r.Err(), ErrClosed)
	_, _, err = r.TryNext()
	wantIs(t, err, ErrClosed)
	_, err = r.Next(deadline(t))
	wantIs(t, err, ErrClosed)
}

func TestReaderFilters(t *testing.T) {
	js := shared.conn.JS
	bs, s := revisions(t, js)
	w, _ := claimFenced(t, js, s)
	other := s
	other.Fence = subject.Commits(bs, "job", 1, 1)
	neighbour, _ := claimFenced(t, js, other)
	for n := uint64(0); n < 20; n += 2 {
		_, err := w.Commit(deadline(t), rows(bs, 0, n+1, 2), numbered(n+2))
		must(t, err)
		_, err = neighbour.Commit(deadline(t), rows(bs, 1, n+1, 2), numbered(n+2))
		must(t, err)
	}
	r := read(t, js, s.Stream, 0, 1, subject.RevisionsOf(bs, "job", 1, 0), s.Fence)
	for range 10*3 + 1 {
		m, err := r.Next(deadline(t))
		must(t, err)
		if strings.Contains(m.Subject, ".1.01") {
			t.Fatalf("foreign message on %s", m.Subject)
		}
	}
	if _, ok, err := r.TryNext(); ok || err != nil {
		t.Fatalf("more messages: %v", err)
	}
}

func TestReaderChecksTheIdentity(t *testing.T) {
	js := shared.conn.JS
	stream, _ := plain(t, js, 5)
	id, err := Identify(deadline(t), js, stream)
	must(t, err)
	for name, tc := range map[string]struct {
		created int64
		next    uint64
		says    string
	}{
		"recreated": {id.Created + 1, 3, "was created at"},
		"behind":    {id.Created, 8, "ends at sequence 5"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(deadline(t), js, stream, tc.created, tc.next)
			wantIs(t, err, ErrIdentity)
			if !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), stream) {
				t.Fatalf("%v does not say %q", err, tc.says)
			}
		})
	}
	take(t, read(t, js, stream, id.Created, 5), 5)
	must(t, id.Check(id.Created, 6))
	wantIs(t, Identity{Stream: "s", First: 7, Last: 9}.Check(0, 5), ErrIdentity)
	_, err = Read(deadline(t), js, "TM_none", 1, 1)
	wantIs(t, err, ErrIdentity)
	_, err = Read(deadline(t), js, "TM_none", 0, 1)
	wantIs(t, err, jetstream.ErrStreamNotFound)
}

func TestReaderSeesARecreatedStream(t *testing.T) {
	js := shared.conn.JS
	stream, subj := plain(t, js, 5)
	handle, err := js.Stream(deadline(t), stream)
	must(t, err)
	r := read(t, js, stream, 0, 1)
	for seq := uint64(1); seq <= 5; seq++ {
		take(t, r, seq)
	}
	must(t, js.DeleteStream(deadline(t), stream))
	_, err = js.CreateStream(deadline(t), handle.CachedInfo().Config)
	must(t, err)
	for range 10 {
		put(t, js, subj, nil, nil)
	}
	_, err = r.Next(deadline(t))
	wantIs(t, err, ErrIdentity)
}

func TestReaderSeesAMissingMessage(t *testing.T) {
	js := shared.conn.JS
	stream, subj := plain(t, js, 5)
	handle, err := js.Stream(deadline(t), stream)
	must(t, err)
	// The server keeps this switch shut; a lost block would look the same.
	wide := handle.CachedInfo().Config
	must(t, js.DeleteStream(deadline(t), stream))
	wide.DenyDelete = false
	handle, err = js.CreateStream(deadline(t), wide)
	must(t, err)
	for range 5 {
		put(t, js, subj, nil, nil)
	}
	must(t, handle.DeleteMsg(deadline(t), 3))
	wide.DenyDelete = true
	_, err = js.UpdateStream(deadline(t), wide)
	must(t, err)
	r := read(t, js, stream, 0, 1)
	take(t, r, 1)
	take(t, r, 2)
	_, err = r.Next(deadline(t))
	wantIs(t, err, ErrIdentity)
	if !strings.Contains(err.Error(), "message 3 is missing") {
		t.Fatal(err)
	}
}

func TestReadRange(t *testing.T) {
	js := shared.conn.JS
	stream, _ := plain(t, js, 100)
	for _, tc := range []struct{ from, to, first, count uint64 }{
		{1, 100, 1, 100}, {0, 1 << 62, 1, 100}, {10, 20, 10, 11}, {50, 50, 50, 1}, {20, 10, 0, 0}, {101, 200, 0, 0},
	} {
		var got []uint64
		must(t, ReadRange(deadline(t), js, stream, 0, tc.from, tc.to, func(m Msg) error {
			got = append(got, m.Seq)
			return nil
		}))
		if uint64(len(got)) != tc.count || tc.count > 0 && got[0] != tc.first {
			t.Fatalf("%+v: %v", tc, got)
		}
	}
	stop := fmt.Errorf("enough")
	err := ReadRange(deadline(t), js, stream, 0, 1, 100, func(Msg) error { return stop })
	wantIs(t, err, stop)
}

func TestReadRangeOfAFilterThatMatchesNothing(t *testing.T) {
	js := shared.conn.JS
	bs, s := revisions(t, js)
	claimFenced(t, js, s)
	must(t, ReadRange(deadline(t), js, s.Stream, 0, 1, 1<<62, func(m Msg) error {
		return fmt.Errorf("message on %s", m.Subject)
	}, subject.RevisionsOf(bs, "job", 9, 0)))
}

func TestLastSeq(t *testing.T) {
	js := shared.conn.JS
	bs, s := revisions(t, js)
	w, _ := claimFenced(t, js, s)
	_, err := w.Commit(deadline(t), rows(bs, 0, 1, 2), numbered(2))
	must(t, err)
	for subj, want := range map[string]uint64{"": 4, s.Fence: 4, subject.Revision(bs, "job", 1, 0, "key 0"): 2, subject.Alias(bs, "job"): 0} {
		got, err := LastSeq(deadline(t), js, s.Stream, subj)
		must(t, err)
		if got != want {
			t.Errorf("last of %q is %d, want %d", subj, got, want)
		}
	}
}

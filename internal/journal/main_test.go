package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// shared is the server of all tests that do not stop it.
var shared struct {
	server *natsio.Embedded
	conn   *natsio.Conn
	serial atomic.Int64
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "journal")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		shared.server, err = natsio.Embed(context.Background(), natsio.EmbeddedOptions{Dir: dir, Port: -1})
		if err != nil {
			panic(err)
		}
		defer shared.server.Shutdown()
		if shared.conn, err = shared.server.Connect(context.Background(), "tests"); err != nil {
			panic(err)
		}
		defer shared.conn.Close()
		return m.Run()
	}())
}

func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// windows makes a fresh windows journal and answers settings for it.
func windows(t testing.TB, js jetstream.JetStream) Settings {
	t.Helper()
	bs := fmt.Sprintf("w%d", shared.serial.Add(1))
	must(t, natsio.ProvisionPolicy(deadline(t), js, bs, "job", 1, 1, 1))
	return Settings{Stream: subject.WindowsStream(bs, "job", 1, 0), Subject: subject.Windows(bs, "job", 1, 0), Owner: "test", CoreVersion: 1, RetryFor: 20 * time.Second}
}

// revisions makes a fresh shared stream and answers settings for key partition 0.
func revisions(t testing.TB, js jetstream.JetStream) (string, FencedSettings) {
	t.Helper()
	bs := fmt.Sprintf("r%d", shared.serial.Add(1))
	must(t, natsio.ProvisionStream(deadline(t), js, bs, 1, 1))
	return bs, FencedSettings{Stream: subject.RevisionsStream(bs), Fence: subject.Commits(bs, "job", 1, 0), Owner: "test", CoreVersion: 1, RetryFor: 20 * time.Second}
}

func claimWriter(t testing.TB, js jetstream.JetStream, s Settings) (*Writer, Head) {
	t.Helper()
	w, head, err := ClaimWriter(deadline(t), js, s)
	must(t, err)
	t.Cleanup(w.Abort)
	return w, head
}

func claimFenced(t testing.TB, js jetstream.JetStream, s FencedSettings) (*FencedWriter, Head) {
	t.Helper()
	w, head, err := ClaimFenced(deadline(t), js, s)
	must(t, err)
	t.Cleanup(w.Close)
	return w, head
}

// numbered is a COMMIT that counts n records.
func numbered(n uint64) revision.Commit {
	c := revision.NewCommit()
	c.Records = n
	return c
}

func recordOf(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// send hands commit n in with one record that says n.
func send(t testing.TB, w *Writer, n uint64) *Pending {
	t.Helper()
	p, err := w.Commit(deadline(t), [][]byte{recordOf(n)}, numbered(n))
	must(t, err)
	return p
}

func result(t testing.TB, p *Pending) (uint64, error) {
	t.Helper()
	select {
	case <-p.Done():
		return p.Result()
	case <-time.After(60 * time.Second):
		t.Fatal("commit was never settled")
		return 0, nil
	}
}

// entries reads the whole journal.
func entries(t testing.TB, js jetstream.JetStream, stream string) []*Entry {
	t.Helper()
	var out []*Entry
	must(t, ReadRange(deadline(t), js, stream, 0, 1, 1<<62, func(m Msg) error {
		e, err := DecodeEntry(m.Seq, m.Data)
		out = append(out, e)
		return err
	}))
	return out
}

// wholeJournal checks what must hold of every single-writer journal whatever happened:
// the chain is whole, epochs grow with claims, no COMMIT stands behind a newer claim, and
// the records count 1, 2, 3… without gap or repetition.
func wholeJournal(t testing.TB, js jetstream.JetStream, stream string) (commits, epoch uint64) {
	t.Helper()
	var chain Chain
	chain.Start()
	for _, e := range entries(t, js, stream) {
		switch {
		case e.Claim != nil:
			if e.Claim.Epoch <= epoch {
				t.Fatalf("sequence %d: claim of epoch %d after epoch %d", e.Seq, e.Claim.Epoch, epoch)
			}
			epoch = e.Claim.Epoch
		case e.Commit != nil:
			must(t, chain.Next(stream, e.Seq, e.Commit))
			if e.Commit.Epoch != epoch {
				t.Fatalf("sequence %d: COMMIT of epoch %d under the claim of epoch %d", e.Seq, e.Commit.Epoch, epoch)
			}
			commits++
			if e.Commit.Records != commits || len(e.Records) != 1 || binary.BigEndian.Uint64(e.Records[0]) != commits {
				t.Fatalf("sequence %d: COMMIT counts %d, expected %d", e.Seq, e.Commit.Records, commits)
			}
		}
	}
	return commits, epoch
}

// put writes a message as a foreign process would, without any expectation.
func put(t testing.TB, js jetstream.JetStream, subj string, data []byte, header nats.Header) uint64 {
	t.Helper()
	ack, err := js.PublishMsg(deadline(t), &nats.Msg{Subject: subj, Data: data, Header: header})
	must(t, err)
	return ack.Sequence
}

func wantIs(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got %v, want %v", err, target)
	}
}

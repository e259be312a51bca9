package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/examples/orders"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

func embed(t *testing.T) *natsio.Conn {
	t.Helper()
	server, err := natsio.Embed(t.Context(), natsio.EmbeddedOptions{Dir: t.TempDir(), Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	return connectTo(t, server)
}

func connectTo(t *testing.T, server *natsio.Embedded) *natsio.Conn {
	t.Helper()
	conn, err := server.Connect(t.Context(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// installation is the orders example with some frames in one events journal.
func installation(t *testing.T) *natsio.Conn {
	t.Helper()
	conn := embed(t)
	docs, bad := policy.Parse("orders.yaml", orders.Documents)
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	if _, err := config.Apply(t.Context(), conn.JS, docs, config.Options{Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(20) {
		publish(t, conn, &envelope.Frame{Writer: "w", Number: n + 1, Extractors: []string{"order.occurred_at@2"}, Values: []string{"amount"}, Records: []envelope.Record{
			{Event: &envelope.Event{ID: fmt.Sprint(n), Source: "shop", Key: "eu", SourceOffset: 1<<32 | n + 1, Times: make([]envelope.EventTime, 1), Values: make([]envelope.Value, 1), Data: []byte("{}")}},
		}})
	}
	return conn
}

func publish(t *testing.T, conn *natsio.Conn, f *envelope.Frame) {
	t.Helper()
	data, err := envelope.AppendFrame(nil, f)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := conn.JS.Publish(ctx, subject.Events("orders", 3), data); err != nil && t.Context().Err() == nil {
		t.Error(err)
	}
}

func quiet(Step) {}

// A cluster gives restored streams another creation time; journals know them all the same.
func TestRestoreIntoACluster(t *testing.T) {
	from := installation(t)
	dir := filepath.Join(t.TempDir(), "b")
	m, err := Take(t.Context(), from, "orders", dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	servers, _, err := natsio.EmbedCluster(t.Context(), t.TempDir(), 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		t.Cleanup(s.Shutdown)
	}
	to := connectTo(t, servers[0])
	if _, err := Restore(t.Context(), to, dir, 3, quiet); err != nil {
		t.Fatal(err)
	}
	for _, j := range m.Journals {
		stream, err := to.JS.Stream(t.Context(), j.Name)
		if err != nil {
			t.Fatal(err)
		}
		id, err := journal.Identify(t.Context(), to.JS, j.Name)
		if err != nil || id.Created != j.Created.UnixNano() || id.Last != j.Last {
			t.Errorf("%s: %+v, %v; the backup has %s and %d", j.Name, id, err, j.Created, j.Last)
		}
		if got := stream.CachedInfo().Config; got.Replicas != 3 || !got.DenyDelete || got.Discard != jetstream.DiscardNew {
			t.Errorf("%s has the configuration %+v", j.Name, got)
		}
	}
	n := 0
	err = journal.ReadRange(t.Context(), to.JS, subject.EventsStream("orders", 3), 0, 1, 100, func(journal.Msg) error { n++; return nil })
	if err != nil || n != 20 {
		t.Errorf("%d frames, %v", n, err)
	}
	docs, err := config.Load(t.Context(), to.JS)
	if err != nil || len(docs.Streams) != 1 || len(docs.Policies) != 1 || docs.Policies[0].CoreVersion != config.CoreVersion {
		t.Errorf("documents %+v, %v", docs, err)
	}
	// A backup of the restored one is of the same streams again.
	again, err := Take(t.Context(), to, "orders", filepath.Join(t.TempDir(), "c"), quiet)
	if err != nil || !again.Journals[0].Created.Equal(m.Journals[0].Created) {
		t.Errorf("second generation: %+v, %v", again, err)
	}
}

// An ingest that does not hold its marks is found out, not believed.
func TestMarksDuringABackupAreFoundOut(t *testing.T) {
	conn := installation(t)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := uint64(21); ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			publish(t, conn, &envelope.Frame{Writer: "w", Number: n, Extractors: []string{"order.occurred_at@2"}, Records: []envelope.Record{
				{Mark: &envelope.Mark{Source: "shop", Epoch: 1, MaxEventTime: make([]envelope.EventTime, 1), Writer: "w", Frames: n - 1}},
			}})
		}
	}()
	dir := filepath.Join(t.TempDir(), "b")
	_, err := Take(t.Context(), conn, "orders", dir, quiet)
	close(stop)
	<-ended
	if !errors.Is(err, ErrMoving) {
		t.Fatalf("got %v, want ErrMoving", err)
	}
	if _, err := Restore(t.Context(), embed(t), dir, 1, quiet); !errors.Is(err, ErrIncomplete) {
		t.Errorf("an incomplete backup was restored: %v", err)
	}
	// Once the marks end, the same directory is completed.
	if _, err := Take(t.Context(), conn, "orders", dir, quiet); err != nil {
		t.Fatal(err)
	}
	if _, faults, err := Check(dir, quiet); err != nil || len(faults) > 0 {
		t.Errorf("%v, %v", faults, err)
	}
}

func TestDirectoriesThatDoNotFit(t *testing.T) {
	conn := installation(t)
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "letter.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Take(t.Context(), conn, "orders", foreign, quiet); !errors.Is(err, ErrDirectory) {
		t.Errorf("a foreign directory: %v", err)
	}
	if _, err := Take(t.Context(), conn, "nothing", t.TempDir(), quiet); !errors.Is(err, ErrUnknown) {
		t.Errorf("an unknown stream: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "b")
	if _, err := Take(t.Context(), conn, "orders", dir, quiet); err != nil {
		t.Fatal(err)
	}
	if _, err := Take(t.Context(), conn, "orders", dir, quiet); !errors.Is(err, ErrDirectory) {
		t.Errorf("a complete backup was overwritten: %v", err)
	}
	if _, err := Restore(t.Context(), conn, dir, 1, quiet); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("restored over what is there: %v", err)
	}
	// A stream of the same name that is another one.
	other := embed(t)
	if _, err := other.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: subject.SourcesStream("orders"), Subjects: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), other, dir, 1, quiet); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("a foreign stream was taken for the restored one: %v", err)
	}
	if docs, err := config.Load(t.Context(), other.JS); err != nil || len(docs.Streams) > 0 {
		t.Errorf("documents were written before the journals were whole: %+v, %v", docs, err)
	}
}

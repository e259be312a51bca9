package tests

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// connect connects a test to a server.
func connect(t *testing.T, url string) *natsio.Conn {
	t.Helper()
	conn, err := natsio.Connect(t.Context(), natsio.Options{Server: url, Name: "tests"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// records answers every record of a windows journal, in order.
func records(t *testing.T, conn *natsio.Conn, stream string) (out [][]byte) {
	t.Helper()
	last, err := journal.LastSeq(t.Context(), conn.JS, stream, "")
	if err != nil {
		t.Fatal(err)
	}
	if last == 0 {
		return nil
	}
	err = journal.ReadRange(t.Context(), conn.JS, stream, 0, 1, last, func(m journal.Msg) error {
		e, err := journal.DecodeEntry(m.Seq, m.Data)
		if err != nil {
			return err
		}
		out = append(out, e.Records...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// start runs one service verb until the test ends and waits for its "ready".
func start(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary, args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	go func() {
		var log bytes.Buffer
		s := bufio.NewScanner(stderr)
		for s.Scan() {
			fmt.Fprintln(&log, s.Text())
			if strings.Contains(s.Text(), `"message":"ready"`) {
				select {
				case ready <- "":
				default:
				}
			}
		}
		ready <- log.String()
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) // may have ended by itself
		cmd.Wait()
	})
	select {
	case log := <-ready:
		if log != "" {
			t.Fatalf("tidemark %s ended early\n%s", strings.Join(args, " "), log)
		}
	case <-time.After(time.Minute):
		t.Fatalf("tidemark %s was not ready within a minute", strings.Join(args, " "))
	}
	return cmd
}

// copyEvents writes the frames of one events journal into another, byte by byte.
func copyEvents(t *testing.T, from, to *natsio.Conn, stream, subj string) {
	t.Helper()
	last, err := journal.LastSeq(t.Context(), from.JS, stream, "")
	if err != nil {
		t.Fatal(err)
	}
	if last == 0 {
		return
	}
	err = journal.ReadRange(t.Context(), from.JS, stream, 0, 1, last, func(m journal.Msg) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := to.JS.PublishMsg(ctx, &nats.Msg{Subject: subj, Data: m.Data})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// One events journal, computed twice: by `up` while events arrive, and by a windower and
// a projector of another installation afterwards. The records are the same, byte by byte.
func TestReplayIntoAFreshInstallationGivesTheSameRecords(t *testing.T) {
	const bs, partitions = "clicks", 4
	docs := write(t, "clicks.yaml", crashDocuments)
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", docs)
	for p := range 2 {
		u.must("send", clicks(t, p, 20_000), "--stream", bs, "--source", "web", "--partition", fmt.Sprint(p), "--finish")
	}
	u.must("wait", bs)

	server, err := natsio.Embed(t.Context(), natsio.EmbeddedOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	must(t, "apply", "-f", docs, "--server", server.URL())
	from, to := connect(t, u.NATS), connect(t, server.URL())
	for pp := range partitions {
		copyEvents(t, from, to, subject.EventsStream(bs, pp), subject.Events(bs, pp))
	}
	start(t, "windower", "--server", server.URL(), "--data", t.TempDir()+"/windower")
	start(t, "projector", "--server", server.URL(), "--data", t.TempDir()+"/projector")
	must(t, "wait", bs, "--server", server.URL(), "--timeout", "1m")

	total := 0
	for pp := range partitions {
		stream := subject.WindowsStream(bs, "per-minute", 1, pp)
		first, second := records(t, from, stream), records(t, to, stream)
		if len(first) != len(second) {
			t.Fatalf("%s: %d records, in the replay %d", stream, len(first), len(second))
		}
		for i := range first {
			if !bytes.Equal(first[i], second[i]) {
				t.Fatalf("%s: record %d differs\n%x\n%x", stream, i, first[i], second[i])
			}
		}
		total += len(first)
	}
	if total < 500 {
		t.Errorf("only %d records were compared", total)
	}
	if r := run(t, "verify", bs, "--server", server.URL()); r.code != 0 {
		t.Errorf("verify of the replay ended with %d\n%s%s", r.code, r.out, r.err)
	}
}

// Losing every local file costs time, never facts.
func TestLostLocalFilesAreRebuiltFromTheJournals(t *testing.T) {
	data := t.TempDir() + "/data"
	u := startUp(t, data)
	u.must("apply", "-f", write(t, "clicks.yaml", crashDocuments))
	file := clicks(t, 0, 20_000)
	u.must("send", file, "--stream", "clicks", "--source", "web", "--partition", "0", "--finish")
	u.must("wait", "clicks")
	before := u.windows("clicks")
	u.kill()
	for _, dir := range []string{"/windower", "/projector"} {
		if err := os.RemoveAll(data + dir); err != nil {
			t.Fatal(err)
		}
	}
	u = startUp(t, data)
	u.must("send", clicks(t, 1, 20_000), "--stream", "clicks", "--source", "web", "--partition", "1", "--finish")
	u.must("wait", "clicks")
	if after := u.windows("clicks"); len(after) < len(before) {
		t.Errorf("%d windows after the loss, %d before", len(after), len(before))
	}
	u.verified("clicks")
}

func TestFlightsAreTheSameAtOneKeyPartition(t *testing.T) {
	text, err := os.ReadFile("../examples/flights/flights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]windowLine
	if !strings.Contains(string(text), "\npartitions: 4") {
		t.Fatal("the example has another number of key partitions than this test replaces")
	}
	for _, partitions := range []string{"\npartitions: 8", "\npartitions: 1"} {
		changed := strings.Replace(string(text), "\npartitions: 4", partitions, 1)
		u := startUp(t, t.TempDir()+"/data")
		u.must("apply", "-f", write(t, "flights.yaml", changed))
		u.must("send", "../examples/flights/flights-20k.jsonl.gz", "--stream", "flights", "--source", "flights", "--finish")
		u.must("wait", "flights")
		u.verified("flights")
		rows = append(rows, u.windows("flights"))
	}
	if len(rows[0]) != len(rows[1]) || len(rows[0]) < 10_000 {
		t.Fatalf("%d and %d windows", len(rows[0]), len(rows[1]))
	}
	for k, w := range rows[0] {
		for name := range w.Value {
			if w.text(name) != rows[1][k].text(name) {
				t.Fatalf("%s has %s = %s at 8 key partitions and %s at 1", k, name, w.text(name), rows[1][k].text(name))
			}
		}
	}
}

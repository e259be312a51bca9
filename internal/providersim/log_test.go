package providersim

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestExecutionsOutliveARestart(t *testing.T) {
	b := start(t, Options{})
	first := b.issue(keyOf(1))
	b = b.reopen(time.Hour, Settings{})
	if r := b.issue(keyOf(1)); !r.replayed || r.members["id"] != first.members["id"] {
		t.Errorf("after the restart: %+v", r)
	}
	if r := b.send(b.deadline(), keyOf(1), 11); r.code() != "idempotency_mismatch" {
		t.Errorf("another body after the restart: %+v", r)
	}
	b = b.reopen(23*time.Hour, Settings{})
	if r := b.issue(keyOf(1)); r.replayed {
		t.Errorf("after the retention: %+v", r)
	}
	b.executed(keyOf(1), 2)
}

// A process that died while it wrote leaves half a line: nobody was told of it, so it did
// not happen.
func TestATornLastLineIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sim.ndjson")
	b := start(t, Options{Log: path})
	b.issue(keyOf(1))
	b.issue(keyOf(2))
	b.close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	firstEnd := strings.IndexByte(string(whole), '\n') + 1
	for cut := firstEnd; cut < len(whole); cut++ {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		l, records, err := openLog(path)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		l.close()
		kept, err := os.ReadFile(path)
		if err != nil || len(records) != 1 || string(kept) != string(whole[:firstEnd]) {
			t.Fatalf("cut at %d: %d records and %d bytes are kept, %v", cut, len(records), len(kept), err)
		}
	}
	b = start(t, Options{Log: path, Clock: b.fake})
	b.issue(keyOf(2))
	b.executed(keyOf(2), 1)
}

func TestADamagedLogIsRefusedWithItsLine(t *testing.T) {
	good := `{"kind":"execution","time":"2026-11-30T10:00:00Z","id":"sim-1","effectKey":"a","mode":"accept"}` + "\n"
	for _, bad := range []string{"x\n", "{}\n", `{"kind":"other","id":"a","effectKey":"a"}` + "\n", `{"kind":"execution","id":"a"}` + "\n", "\n"} {
		path := filepath.Join(t.TempDir(), "sim.ndjson")
		if err := os.WriteFile(path, []byte(good+bad+good), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := openLog(path); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v", bad, err)
		}
		if _, err := ReadLog(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestALogHasOneWriter(t *testing.T) {
	b := start(t, Options{})
	if second, err := Start(Options{Log: b.log}); err == nil {
		second.Close(t.Context())
		t.Error("a second simulator writes the same log")
	} else if !strings.Contains(err.Error(), "another provider simulator") {
		t.Error(err)
	}
	if _, err := ReadLog(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("no log: %v", err)
	}
}

func TestALogThatCannotBeWrittenIsAProblem(t *testing.T) {
	b := start(t, Options{})
	b.issue(keyOf(1))
	b.Sim.log.file.Close() // as a disk that went away
	if r := b.issue(keyOf(2)); r.status != 500 {
		t.Errorf("answered %d %s", r.status, r.body)
	}
	if len(b.Executions(keyOf(2))) != 0 || len(b.Problems()) != 1 {
		t.Errorf("%d executions, problems %v", len(b.Executions(keyOf(2))), b.Problems())
	}
	if r := b.get("/readyz?verbose"); r.status != 503 || !strings.Contains(string(r.body), "log") {
		t.Errorf("readyz: %d %s", r.status, r.body)
	}
}

// One key, many callers at once: one execution.
func TestCallersAtOnceShareOneExecution(t *testing.T) {
	b := start(t, Options{})
	var callers sync.WaitGroup
	statuses := make([]int, 32)
	for i := range statuses {
		callers.Go(func() { statuses[i] = b.send(t.Context(), keyOf(1), 10).status })
	}
	callers.Wait()
	for _, status := range statuses {
		if status != 200 && status != 409 {
			t.Errorf("a caller was answered %d", status)
		}
	}
	b.executed(keyOf(1), 1)
}

func TestJudgeCountsWhatWasDoneMoreThanOnce(t *testing.T) {
	counts := Judge([]Record{
		{Kind: Held, ID: "1", EffectKey: "held"},
		{Kind: Execution, ID: "2", EffectKey: "once"},
		{Kind: Execution, ID: "3", EffectKey: "twice", BodyDigest: "a"},
		{Kind: Held, ID: "4", EffectKey: "once-held"},
		{Kind: Execution, ID: "5", EffectKey: "twice", BodyDigest: "b"},
		{Kind: Execution, ID: "4", EffectKey: "once-held"},
		{Kind: Delivered, ID: "4", EffectKey: "once-held"},
	})
	want := []Count{{EffectKey: "twice", Executions: 2, Bodies: 2}, {EffectKey: "once", Executions: 1, Bodies: 1}, {EffectKey: "once-held", Executions: 1, Bodies: 1}, {EffectKey: "held", Held: 1}}
	if len(counts) != len(want) {
		t.Fatalf("%+v", counts)
	}
	for i := range want {
		if counts[i] != want[i] {
			t.Errorf("%+v, want %+v", counts[i], want[i])
		}
	}
}

// Whatever a log holds, it is refused with its line or reads back as it is written.
func FuzzReadLog(f *testing.F) {
	f.Add([]byte(`{"kind":"execution","time":"2026-11-30T10:00:00Z","id":"sim-1","effectKey":"a","amount":12.50,"mode":"hold:5m"}` + "\n"))
	f.Add([]byte(`{"kind":"execution","id":"sim-1","effectKey":"a","mode":"hold:0m"}` + "\n"))
	f.Add([]byte(`{"kind":"held","time":"2026-11-30T10:00:00Z","id":"sim-2","effectKey":"b","due":"2026-11-30T10:05:00Z","forgetAfter":"3s"}` + "\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		records, whole, err := readLog(strings.NewReader(string(data)), "log")
		if err != nil {
			return
		}
		if whole > int64(len(data)) || strings.Count(string(data[:whole]), "\n") != len(records) {
			t.Fatalf("%d records in %d bytes", len(records), whole)
		}
		for i := range records {
			line, err := records[i].encode()
			if err != nil {
				continue // a year that RFC 3339 cannot write
			}
			again, err := decode(line[:len(line)-1])
			if err != nil {
				t.Fatalf("%s does not read back: %v", line, err)
			}
			if same, err := again.encode(); err != nil || string(same) != string(line) {
				t.Fatalf("%s reads back as %s", line, same)
			}
		}
	})
}

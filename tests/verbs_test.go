package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type traceLine struct {
	Step, Journal, SourcePartition, Class, PolicyGeneration, Rule, Reason string
	Sequence, SourceOffset, Revision, Frame                               uint64
	Index, KeyPartition                                                   *int
	FirstIncluding                                                        bool
	Value                                                                 map[string]any
}

// One event that was refused, replayed, corrected a window, came again, and one that was
// too late: every place is named.
func TestTraceFollowsAnEventThroughEveryJournal(t *testing.T) {
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", write(t, "clicks.yaml", strings.Replace(crashDocuments, "allowedLateness: 24h", "allowedLateness: 1h", 1)))
	send := func(partition int, lines ...string) {
		t.Helper()
		u.must("send", write(t, "e.jsonl", strings.Join(lines, "\n")+"\n"), "--stream", "clicks", "--source", "web", "--partition", fmt.Sprint(partition))
	}
	event := func(id string, n, at int) string {
		return fmt.Sprintf(`{"id":%q,"user":"a","n":%d,"at":%d}`, id, n, at)
	}
	const base = 1740816000000
	send(0, event("x", 1, base), event("y", 1, base+120_000))
	send(1, event("z", 1, base+120_000))
	u.must("wait", "clicks")
	send(1, event("x", 1, base))        // again: a duplicate
	send(1, event("x", 2, base))        // another payload
	send(0, event("late", 5, base+500)) // corrects the window of x
	u.must("wait", "clicks")
	send(0, event("far", 1, base+2*3_600_000))
	send(1, event("far2", 1, base+2*3_600_000))
	u.must("wait", "clicks")
	send(0, event("gone", 1, base))
	u.must("wait", "clicks")

	steps := ndjson[traceLine](t, u.must("trace", "x", "--stream", "clicks", "--source", "web", "--key", "a", "-o", "ndjson"))
	var got []string
	for _, s := range steps {
		text := s.Step
		switch s.Step {
		case "event":
			text += " " + s.SourcePartition + " " + s.Class
			if s.Sequence == 0 || s.Index == nil || s.Frame == 0 || s.KeyPartition == nil {
				t.Errorf("without its place: %+v", s)
			}
		case "conflict":
			text += " " + s.Rule
		case "revision", "row":
			text += fmt.Sprintf(" %d %v %v", s.Revision, s.FirstIncluding, s.Value["total"])
		}
		got = append(got, text)
	}
	want := "event 0 first|event 1 duplicate|event 1 other-digest|conflict other-digest|revision 1 true 1|revision 2 false 6|row 2 false 6"
	if strings.Join(got, "|") != want {
		t.Errorf("x: %s\nwant %s", strings.Join(got, "|"), want)
	}
	steps = ndjson[traceLine](t, u.must("trace", "late", "-o", "ndjson"))
	if len(steps) != 3 || steps[1].Revision != 2 || !steps[1].FirstIncluding {
		t.Errorf("late: %+v", steps)
	}
	steps = ndjson[traceLine](t, u.must("trace", "gone", "-o", "ndjson"))
	if len(steps) != 2 || steps[1].Step != "late" || steps[1].PolicyGeneration != "per-minute@1" {
		t.Errorf("gone: %+v", steps)
	}
	check(t, run(t, "trace", "nobody", "--server", u.NATS), 1, "nobody", "nowhere")
	check(t, run(t, "trace", "x", "--stream", "nothing", "--server", u.NATS), 2, "nothing")
}

type checkLine struct{ Check, Of, Result, What, Do string }

func TestDoctorSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", write(t, "clicks.yaml", crashDocuments))
	u.must("send", clicks(t, 0, 100), "--stream", "clicks", "--source", "web", "--finish")
	u.must("wait", "clicks")
	results := map[string]string{}
	for _, c := range ndjson[checkLine](t, u.must("doctor", "-o", "ndjson")) {
		results[c.Check+" "+c.Of] = c.Result
		if c.Result != "ok" && c.Do == "" {
			t.Errorf("%+v does not say what to do", c)
		}
	}
	for _, name := range []string{"documents ", "streams clicks", "streams clicks/per-minute@1", "leases ingest", "leases windower", "leases projector", "windower clicks/per-minute@1", "projector clicks", "ingest clicks"} {
		if results[name] != "ok" {
			t.Errorf("%s is %q", name, results[name])
		}
	}
	// A journal of an applied policy is deleted by hand.
	if err := connect(t, u.NATS).JS.DeleteStream(t.Context(), "TM_clicks_WIN_per-minute_1_02"); err != nil {
		t.Fatal(err)
	}
	r := run(t, "doctor", "--server", u.NATS)
	check(t, r, 1, "fail", "TM_clicks_WIN_per-minute_1_02", "does not exist")
	check(t, run(t, "doctor", "--server", "nats://127.0.0.1:1"), 3, "fail", "127.0.0.1:1")
}

type stateLine struct {
	File, Kind, State, Journal, MovedTo, What string
	Position, Entries                         uint64
	Format                                    int
}

func TestStateVerifyAndRebuild(t *testing.T) {
	data := t.TempDir() + "/data"
	u := startUp(t, data)
	u.must("apply", "-f", write(t, "clicks.yaml", crashDocuments))
	u.must("send", clicks(t, 0, 5_000), "--stream", "clicks", "--source", "web", "--finish")
	u.must("wait", "clicks")
	before := u.windows("clicks")
	check(t, run(t, "state", "verify", data), 0, "in-use")
	check(t, run(t, "state", "rebuild", data), 5, "stop the process")
	if code := u.stop(); code != 0 {
		t.Fatalf("up ended with %d\n%s", code, u.log)
	}
	files := ndjson[stateLine](t, must(t, "state", "verify", data, "-o", "ndjson"))
	if len(files) != 8 {
		t.Fatalf("%d files: %+v", len(files), files)
	}
	for _, f := range files {
		if f.State != "ok" || f.Kind == "" || f.Format == 0 || f.Journal == "" || f.Position == 0 {
			t.Errorf("%+v", f)
		}
	}
	// A page in the middle of one file, and the whole of another.
	broken := filepath.Join(data, filepath.FromSlash(files[0].File))
	text, err := os.ReadFile(broken)
	if err != nil {
		t.Fatal(err)
	}
	for i := 2 * 4096; i < 6*4096; i++ {
		text[i] = 0xaa
	}
	empty := filepath.Join(data, filepath.FromSlash(files[7].File))
	for path, content := range map[string][]byte{broken: text, empty: nil} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check(t, run(t, "state", "verify", data), 1, "damaged")
	check(t, run(t, "state", "rebuild", data, "--dry-run"), 0, "2 of 8", "nothing was done")
	moved := ndjson[stateLine](t, must(t, "state", "rebuild", data, "-o", "ndjson"))
	if len(moved) != 2 {
		t.Fatalf("%+v", moved)
	}
	for _, f := range moved {
		if _, err := os.Stat(f.MovedTo); err != nil || f.State != "damaged" {
			t.Errorf("%+v: %v", f, err)
		}
	}
	u = startUp(t, data)
	u.must("wait", "clicks")
	if after := u.windows("clicks"); len(after) != len(before) {
		t.Errorf("%d windows, %d before", len(after), len(before))
	}
	u.verified("clicks")
	check(t, run(t, "state", "verify", t.TempDir()), 2, "no data directory")

	// Files that speak of another installation do not fit its journals.
	u.stop()
	other := startUp(t, t.TempDir()+"/data")
	other.must("apply", "-f", write(t, "clicks.yaml", crashDocuments))
	check(t, run(t, "state", "verify", data, "--server", other.NATS), 1, "ahead")
}

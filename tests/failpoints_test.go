//go:build heavy

package tests

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

var (
	onlyPoints  = flag.String("failpoints.only", "", "run only rounds whose name (point/mode@hit) matches this expression")
	pointsTable = flag.String("failpoints.table", "", "write the table of the sweep into this page")
	pointsAside = flag.Int("failpoints.workers", runtime.NumCPU()+1, "rounds at a time: many only wait")
)

// Modes of a point. A stall is longer than a question to a server may take.
const stallFor = 2200 * time.Millisecond

var (
	pointModes = []string{"crash", "error", "stall(" + stallFor.String() + ")"}
	pointHits  = []int{1, 2}
)

// pointRound is one run: one point fires once, in one way.
type pointRound struct {
	point failpoint.Point
	mode  string
	hit   int
}

func (r pointRound) String() string { return fmt.Sprintf("%s/%s@%d", r.point.Name, r.mode, r.hit) }

// arm answers the value of the environment variable.
func (r pointRound) arm() string {
	own := fmt.Sprintf("%s=%s@%d", r.point.Name, r.mode, r.hit)
	if r.point.Needs == "" {
		return own
	}
	return r.point.Needs + ";" + own
}

// pointOutcome says how a round went.
type pointOutcome struct {
	recovery time.Duration // from the firing until everything sent was visible to readers
	err      error
}

// Every step of every loop, in every mode, on the first and the second hit: afterwards
// readers see the plain computation's result and verify is green. A point that the
// workload does not come by fails the sweep.
func TestFailpoints(t *testing.T) {
	s := newSweep(t)
	only := regexp.MustCompile(*onlyPoints)
	var rounds []pointRound
	for _, p := range failpoint.Points() {
		for _, mode := range pointModes {
			for _, hit := range pointHits {
				if r := (pointRound{p, mode, hit}); only.MatchString(r.String()) {
					rounds = append(rounds, r)
				}
			}
		}
	}
	if len(rounds) == 0 {
		t.Fatalf("no round matches %q", *onlyPoints)
	}
	began := time.Now()
	outcomes := s.all(rounds)
	table := pointsReport(rounds, outcomes)
	t.Logf("%d rounds in %s\n%s", len(rounds), time.Since(began).Round(time.Second), table)
	for i, r := range rounds {
		if err := outcomes[i].err; err != nil {
			t.Errorf("%s: %v", r, err)
		}
	}
	if *pointsTable != "" {
		writePointsTable(t, *pointsTable, table)
	}
}

// tableMark is the line of the page behind which the table stands.
const tableMark = "<!-- the sweep writes what follows -->\n"

func writePointsTable(t *testing.T, path, table string) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	prose, _, found := strings.Cut(string(page), tableMark)
	if !found {
		t.Fatalf("%s has no line %q", path, tableMark)
	}
	if err := os.WriteFile(path, []byte(prose+tableMark+"\n"+table), 0o600); err != nil {
		t.Fatal(err)
	}
}

// all runs the rounds, several at a time.
func (s *sweep) all(rounds []pointRound) []pointOutcome {
	outcomes := make([]pointOutcome, len(rounds))
	next := make(chan int)
	var workers sync.WaitGroup
	for range *pointsAside {
		workers.Go(func() {
			for i := range next {
				outcomes[i] = s.run(rounds[i])
			}
		})
	}
	for i := range rounds {
		next <- i
	}
	close(next)
	workers.Wait()
	return outcomes
}

// pointsReport writes the table point × mode × hit in Markdown.
func pointsReport(rounds []pointRound, outcomes []pointOutcome) string {
	var b strings.Builder
	b.WriteString("| point | after |")
	for _, mode := range pointModes {
		for _, hit := range pointHits {
			name, _, _ := strings.Cut(mode, "(")
			fmt.Fprintf(&b, " %s, hit %d |", name, hit)
		}
	}
	b.WriteString("\n| --- | --- |" + strings.Repeat(" --- |", len(pointModes)*len(pointHits)) + "\n")
	var cells []string
	for i, r := range rounds {
		cell := fmt.Sprintf("ok %.1f s", outcomes[i].recovery.Seconds())
		if outcomes[i].err != nil {
			cell = "FAILED"
		}
		cells = append(cells, cell)
		if i+1 == len(rounds) || rounds[i+1].point != r.point {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.point.Name, r.point.After, strings.Join(cells, " | "))
			cells = nil
		}
	}
	return b.String()
}

// sweep holds what every round shares.
type sweep struct {
	binary   string // built with the tag
	template string // data directory that every round begins with a copy of
	files    [2]string
	want     map[string][2]int
	scratch  string
}

// newSweep builds the program with its points and prepares a data directory: files of an
// orderly end, then more events and kill -9, so that windower and projector have
// something to recover.
func newSweep(t *testing.T) *sweep {
	t.Helper()
	s := &sweep{binary: filepath.Join(t.TempDir(), "tidemark"), template: filepath.Join(t.TempDir(), "data"), scratch: t.TempDir()}
	build := exec.Command("go", "build", "-tags", "failpoints", "-o", s.binary, "../cmd/tidemark")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	pointsAreInTheTaggedBinaryOnly(t, s.binary)
	u := startUp(t, s.template, "--checkpoint-every", "1ms", "--snapshot-every", "1ms")
	u.must("apply", "-f", write(t, "clicks.yaml", strings.Replace(crashDocuments, "partitions: 4", "partitions: 2", 1)))
	var all []string
	part := func(u *up, n int) {
		for p := range 2 {
			file := fewClicks(t, p, n)
			all = append(all, file)
			if u == nil {
				s.files[p] = file
				continue
			}
			u.must("send", file, "--stream", "clicks", "--source", "web", "--partition", fmt.Sprint(p))
		}
		if u != nil {
			u.must("wait", "clicks")
		}
	}
	part(u, 0)
	awaitSnapshots(t, u)
	if code := u.stop(); code != 0 {
		t.Fatalf("up ended with %d\n%s", code, u.log)
	}
	u = startUp(t, s.template, "--checkpoint-every", "1h", "--snapshot-every", "-1s")
	part(u, 1)
	u.kill()
	part(nil, 2)
	s.want = expectedFewClicks(t, all)
	return s
}

// awaitSnapshots waits until both key partitions have a snapshot.
func awaitSnapshots(t *testing.T, u *up) {
	t.Helper()
	conn := connect(t, u.NATS)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	objects, err := conn.JS.ObjectStore(ctx, subject.SnapshotBucket)
	if err != nil {
		t.Fatal(err)
	}
	for pp := range 2 {
		for {
			_, err := objects.GetInfo(ctx, subject.SnapshotPointer("clicks", "per-minute", 1, pp))
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("no snapshot of key partition %d: %v", pp, err)
			}
			time.Sleep(20 * time.Millisecond) // between two looks
		}
	}
}

// pointsAreInTheTaggedBinaryOnly shows that points cost nothing without the tag: not even
// their names are left.
func pointsAreInTheTaggedBinaryOnly(t *testing.T, tagged string) {
	t.Helper()
	for path, there := range map[string]bool{tagged: true, binary: false} {
		program, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range append([]string{failpoint.Variable}, pointNames()...) {
			if bytes.Contains(program, []byte(name)) != there {
				t.Errorf("%s: name %s is in it: %t", path, name, !there)
			}
		}
	}
}

func pointNames() (names []string) {
	for _, p := range failpoint.Points() {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

package bench

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

func small() Spec { return Spec{Events: 50_000, Keys: 500, Hours: 24, Seed: 1} }

// The same Spec must be the same bytes in every version, or figures cannot be compared.
// Zipf's logarithms may differ in their last bit from one kind of processor to another.
func TestTheWorkloadIsFixed(t *testing.T) {
	sum := sha256.New()
	var line []byte
	for g := NewGenerator(small()); ; {
		ev, more := g.Next()
		if !more {
			break
		}
		line = ev.AppendLine(line[:0])
		sum.Write(line)
	}
	const want = "7e2c3ddeed7072c0"
	if got := hex.EncodeToString(sum.Sum(nil)[:8]); got != want && runtime.GOARCH == "amd64" {
		t.Errorf("the workload is %s, it was %s", got, want)
	}
}

func TestSharesAndDisorder(t *testing.T) {
	counts, silentOnes, size := map[Class]int{}, 0, 0
	spec := small()
	for g, n := NewGenerator(spec), 0; ; n++ {
		ev, more := g.Next()
		if !more {
			break
		}
		counts[ev.Class]++
		line := ev.AppendLine(nil)
		size += len(line)
		if !json.Valid(line) {
			t.Fatalf("not JSON: %s", line)
		}
		if ev.Partition == silent && g.quiet(n) {
			silentOnes++
		}
		behind := time.Duration(ev.Now-ev.Time) * time.Microsecond
		switch {
		case ev.Class == OnTime && (behind < 0 || behind > Disorder),
			ev.Class == Late && (behind <= Disorder || behind > Lateness),
			ev.Class == TooLate && behind < beyondFrom,
			ev.Class == Future && behind > 0,
			(ev.Class == NoTime) == bytes.Contains(line, []byte("occurred_at")):
			t.Fatalf("event of class %d is %s behind: %s", ev.Class, behind, line)
		}
	}
	for class, permille := range map[Class]float64{Late: 80, Twin: 10, TooLate: 5 * 0.8, Future: 1, NoTime: 1} {
		if got := float64(counts[class]) * 1000 / float64(spec.Events); got < permille*0.7 || got > permille*1.3 {
			t.Errorf("class %d has %.2f of 1000 events, want about %.1f", class, got, permille)
		}
	}
	if silentOnes > 0 {
		t.Errorf("the silent partition sends %d events", silentOnes)
	}
	if mean := size / spec.Events; mean < 180 || mean > 230 {
		t.Errorf("an event has %d bytes", mean)
	}
}

func TestDocumentsAreValid(t *testing.T) {
	for _, w := range Windows() {
		docs, found := policy.Parse("bench", Documents("49h", w))
		if len(found) > 0 || len(docs) != 2 {
			t.Fatalf("%s: %d documents, findings %v", w, len(docs), found)
		}
		if found = policy.Lint(docs, nil); len(found) > 0 || string(docs[1].Policy.Window.Kind) != string(w) {
			t.Errorf("%s: %+v, findings %v", w, docs[1].Policy.Window, found)
		}
	}
}

// rightRows are the rows that readers must see in the end, computed in the plainest way.
func rightRows(s Spec) (rows []*revision.Revision) {
	type sum struct {
		cents int64
		count int
	}
	sums := map[string]map[revision.Window]*sum{}
	put := func(key string, w revision.Window, ev *Event) {
		if sums[key] == nil {
			sums[key] = map[revision.Window]*sum{}
		}
		if sums[key][w] == nil {
			sums[key][w] = &sum{}
		}
		sums[key][w].cents += ev.Cents
		sums[key][w].count++
	}
	byKey := map[string][]Event{}
	for g := NewGenerator(s); ; {
		ev, more := g.Next()
		if !more {
			break
		}
		if ev.Class == OnTime || ev.Class == Late {
			key := string(AppendKey(nil, ev.Key))
			byKey[key] = append(byKey[key], ev)
		}
	}
	for key, events := range byKey {
		slices.SortFunc(events, func(a, b Event) int { return cmp.Compare(a.Time, b.Time) })
		for i := range events {
			switch s.Window {
			case Session:
				const gap = envelope.EventTime(sessionGap / time.Microsecond)
				first, last := i, i
				for first > 0 && events[first].Time-events[first-1].Time < gap {
					first--
				}
				for last+1 < len(events) && events[last+1].Time-events[last].Time < gap {
					last++
				}
				put(key, revision.Window{Start: events[first].Time, End: events[last].Time + gap}, &events[i])
			default:
				const size = envelope.EventTime(windowSize / time.Microsecond)
				every := envelope.EventTime(s.Window.every() / time.Microsecond)
				for start := events[i].Time - events[i].Time%every; start > events[i].Time-size; start -= every {
					put(key, revision.Window{Start: start, End: start + size}, &events[i])
				}
			}
		}
	}
	for key, windows := range sums {
		for w, n := range windows {
			rows = append(rows, &revision.Revision{
				Key: key, Window: w, Op: revision.Upsert, Revision: 1,
				Value: []revision.Field{{Name: "orders", Text: fmt.Sprint(n.count)}, {Name: SumName, Text: string(appendCents(nil, n.cents))}},
			})
		}
	}
	return rows
}

// A batch over the events is right, and tells a wrong, missing, doubled or foreign row.
func TestExpected(t *testing.T) {
	for _, w := range Windows() {
		t.Run(string(w), func(t *testing.T) {
			spec := small()
			spec.Window = w
			if w == Session {
				spec.Events = 10_000 // the plain way takes its time
			}
			rows := rightRows(spec)
			judge := func(change func(*revision.Revision) bool) (Check, error) {
				e, c := Expect(spec), Check{}
				if e.Windows() != len(rows) {
					t.Fatalf("%d windows, want %d", e.Windows(), len(rows))
				}
				for i, r := range rows {
					copied := *r
					copied.Value = slices.Clone(r.Value)
					if i == 0 && !change(&copied) {
						continue
					}
					if err := e.Note(&copied); err != nil {
						return c, err
					}
				}
				e.Judge(&c)
				return c, nil
			}
			if c, err := judge(func(*revision.Revision) bool { return true }); err != nil || c.Wrong != 0 || c.Checked != uint64(len(rows)) {
				t.Errorf("right rows: %+v, %v", c, err)
			}
			if c, err := judge(func(*revision.Revision) bool { return false }); err != nil || c.Wrong != 1 {
				t.Errorf("a missing row: %+v, %v", c, err)
			}
			if c, err := judge(func(r *revision.Revision) bool { r.Value[1].Text = "0.01"; return true }); err != nil || c.Wrong != 1 {
				t.Errorf("a wrong row: %+v, %v", c, err)
			}
			if _, err := judge(func(r *revision.Revision) bool { r.Revision = 2; return true }); err == nil || !strings.Contains(err.Error(), "after revision 0") {
				t.Errorf("a skipped revision: %v", err)
			}
			c, err := judge(func(r *revision.Revision) bool { r.Key = "c-999999"; return true })
			if err == nil && c.Wrong == 0 {
				t.Error("a foreign key is taken")
			}
			c, err = judge(func(r *revision.Revision) bool { r.Window.End++; return true })
			if err == nil && c.Wrong == 0 {
				t.Error("other bounds are taken")
			}
		})
	}
}

// What a session became is no row: a retraction takes it away, and takes only what is there.
func TestExpectedTakesRetractions(t *testing.T) {
	spec := Spec{Events: 10_000, Keys: 500, Hours: 24, Seed: 1, Window: Session}
	e := Expect(spec)
	rows := rightRows(spec)
	old := *rows[0]
	old.Window.End--
	gone := old
	gone.Op, gone.Revision, gone.Value = revision.Retract, 2, nil
	for _, r := range append([]*revision.Revision{&old, &gone}, rows...) {
		if err := e.Note(r); err != nil {
			t.Fatal(err)
		}
	}
	var c Check
	if e.Judge(&c); c.Wrong != 0 {
		t.Errorf("%+v", c)
	}
	gone.Revision = 3
	if err := e.Note(&gone); err == nil || !strings.Contains(err.Error(), "not current") {
		t.Errorf("a second retraction: %v", err)
	}
}

func TestSummarise(t *testing.T) {
	var waits []time.Duration
	for i := 1; i <= 1000; i++ {
		waits = append(waits, time.Duration(i)*time.Millisecond)
	}
	if l := Summarise(waits); l.Count != 1000 || l.P50 != 500 || l.P99 != 990 || l.Max != 1000 {
		t.Errorf("%+v", l)
	}
	if l := Summarise(nil); l.Count != 0 {
		t.Errorf("%+v", l)
	}
}

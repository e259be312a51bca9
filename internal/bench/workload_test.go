package bench

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
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
	docs, found := policy.Parse("bench", Documents("49h"))
	if len(found) > 0 || len(docs) != 2 {
		t.Fatalf("%d documents, findings %v", len(docs), found)
	}
}

// A batch over the events is right, and tells a wrong, missing, doubled or foreign row.
func TestExpected(t *testing.T) {
	spec := small()
	sums := map[string]*revision.Revision{}
	cents := map[string]int64{}
	counts := map[string]int{}
	for g := NewGenerator(spec); ; {
		ev, more := g.Next()
		if !more {
			break
		}
		if ev.Class != OnTime && ev.Class != Late {
			continue
		}
		const hour = envelope.EventTime(time.Hour / time.Microsecond)
		start := ev.Time - ev.Time%hour
		id := fmt.Sprint(ev.Key, start)
		cents[id] += ev.Cents
		counts[id]++
		sums[id] = &revision.Revision{
			Key: string(AppendKey(nil, ev.Key)), Window: revision.Window{Start: start, End: start + hour}, Revision: 1,
			Value: []revision.Field{{Name: "orders", Text: fmt.Sprint(counts[id])}, {Name: SumName, Text: string(appendCents(nil, cents[id]))}},
		}
	}
	judge := func(change func(*revision.Revision) bool) (Check, error) {
		e, c := Expect(spec), Check{}
		if e.Windows() != len(sums) {
			t.Fatalf("%d windows, want %d", e.Windows(), len(sums))
		}
		first := true
		for _, r := range sums {
			copied := *r
			copied.Value = append([]revision.Field(nil), r.Value...)
			if first && !change(&copied) {
				first = false
				continue
			}
			first = false
			if err := e.Note(&copied); err != nil {
				return c, err
			}
		}
		e.Judge(&c)
		return c, nil
	}
	if c, err := judge(func(*revision.Revision) bool { return true }); err != nil || c.Wrong != 0 || c.Checked != uint64(len(sums)) {
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
	if _, err := judge(func(r *revision.Revision) bool { r.Key = "c-999999"; return true }); err == nil {
		t.Error("a foreign key is taken")
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

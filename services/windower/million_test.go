//go:build heavy

package windower

import (
	"fmt"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/internal/verify/oracle"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

const million = 1_000_000

// placeOf names a window by its key and start.
type placeOf struct {
	key   string
	start envelope.EventTime
}

// TestMillionWindowsCloseOverCrashes closes a million windows with one mark, ends the
// process without goodbye in the middle of the commits again and again, and compares what
// the journal says in the end with the oracle.
func TestMillionWindowsCloseOverCrashes(t *testing.T) {
	w := newWorld(t, 1)
	const perFrame = 250
	events := make([]*envelope.Event, 0, perFrame)
	for k := 0; k < million; k += perFrame {
		events = events[:0]
		for i := range perFrame {
			events = append(events, w.priced(k+i))
		}
		w.events(0, events...)
	}
	last := w.mark(0, epoch.Add(2*hour))

	inside := 0
	for round := uint64(1); round <= 6; round++ {
		r := start(t, w.unit(0, w.dir))
		edge := round * million / 8
		await(t, fmt.Sprintf("%d records", edge), func() bool {
			c := r.u.accepted()
			return c != nil && c.Records >= edge && r.u.state() == roleLive
		})
		r.crash(t)
		if c := r.u.accepted(); c.Inputs[0].Outputs > 0 && c.Records < million {
			inside++
		}
	}
	if inside < 3 {
		t.Fatalf("%d of 6 crashes came between the commits of the mark, want at least 3", inside)
	}
	r := start(t, w.unit(0, w.dir))
	r.reached(t, last+1)
	r.drain(t)
	w.million(t)
}

// priced is an event of a key of its own, with the data that the oracle reads.
func (w *world) priced(k int) *envelope.Event {
	at := epoch.Add(int64(k%3600) * 1_000_000)
	e := w.order(fmt.Sprintf("key-%07d", k), at, int64(100+k))
	e.Data = fmt.Appendf(nil, `{"amount":%d.%02d,"at":%q,"k":%q}`, e.Values[0].Int/100, e.Values[0].Int%100, at, e.Key)
	digest, err := envelope.DigestJSON(e.Data)
	must(w.t, err)
	e.Digest = digest
	return e
}

// million holds every record of the journal against the oracle's rows.
func (w *world) million(t *testing.T) {
	o, err := oracle.New(w.bs, w.pol)
	must(t, err)
	for i, data := range w.frames[0] {
		f, err := envelope.DecodeFrame(data)
		must(t, err)
		must(t, o.Frame(uint64(i+1), f, -1))
	}
	rows := map[placeOf]oracle.Row{}
	for _, row := range o.Rows() {
		rows[placeOf{row.Key, row.Start}] = row
	}
	if len(rows) != million {
		t.Fatalf("the oracle has %d windows", len(rows))
	}
	b := w.read(0)
	if len(b.records) != million {
		t.Fatalf("%d records in the journal, want %d: a window was lost or said twice", len(b.records), million)
	}
	for i, data := range b.records {
		r, err := record.Decode(data)
		must(t, err)
		p := r.Proposal
		at := placeOf{p.Key, p.Window.Start}
		row, ok := rows[at]
		if !ok {
			t.Fatalf("record %d: key %q, window %s: the oracle has no such window, or it came twice", i, p.Key, p.Window.Start)
		}
		delete(rows, at)
		value := map[string]string{}
		for _, f := range p.Value {
			value[f.Name] = f.Text
		}
		if p.Revision != row.Revision || p.Inputs.Events != row.Events || fmt.Sprintf("%x", p.Inputs.IDDigest) != row.IDDigest ||
			fmt.Sprint(value) != fmt.Sprint(row.Value) {
			t.Fatalf("record %d: key %q has revision %d of %d events, %v; the oracle has %d of %d, %v",
				i, p.Key, p.Revision, p.Inputs.Events, value, row.Revision, row.Events, row.Value)
		}
	}
}

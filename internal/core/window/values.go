package window

import (
	"encoding/binary"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// The values of a window's last revision are kept as texts in one byte slice a pane:
// the next revision needs them for its delta. A million windows cost a million short
// stretches of bytes, not a million objects.

// minWaste is how much of pane.values may lie idle before it is written anew.
const minWaste = 4096

// lastValue answers the values of the window's last revision; none for a RETRACT or a
// window never published.
func (o *Operator) lastValue(p *pane, w *win) []revision.Field {
	if w.valueLen == 0 {
		return nil
	}
	rest := p.values[w.valueAt : w.valueAt+w.valueLen]
	fields := make([]revision.Field, len(o.program))
	for i := range o.program {
		head, n := binary.Uvarint(rest)
		size := int(head >> 1)
		fields[i] = revision.Field{Name: o.program[i].Result, Text: string(rest[n : n+size]), Quoted: head&1 == 1}
		rest = rest[n+size:]
	}
	return fields
}

// keepValue makes fields the values of the window's last revision.
func (p *pane) keepValue(w *win, fields []revision.Field) {
	p.waste += int(w.valueLen)
	w.valueLen = 0
	if p.waste > minWaste && p.waste > len(p.values)/2 {
		p.compact()
	}
	w.valueAt = uint32(len(p.values))
	p.values = appendFields(p.values, fields)
	w.valueLen = uint32(len(p.values)) - w.valueAt
}

func appendFields(b []byte, fields []revision.Field) []byte {
	for i := range fields {
		head := uint64(len(fields[i].Text)) << 1
		if fields[i].Quoted {
			head |= 1
		}
		b = append(binary.AppendUvarint(b, head), fields[i].Text...)
	}
	return b
}

// compact writes the values anew without what nobody refers to.
func (p *pane) compact() {
	values := make([]byte, 0, len(p.values)-p.waste)
	for i := range p.wins {
		w := &p.wins[i]
		from := uint32(len(values))
		values = append(values, p.values[w.valueAt:w.valueAt+w.valueLen]...)
		w.valueAt = from
	}
	p.values, p.waste = values, 0
}

func sameFields(a, b []revision.Field) bool { return slices.Equal(a, b) }

package window

import (
	"math/bits"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// win is one window of one key: flat, without pointers.
type win struct {
	idDigest    [16]byte        // sum over the members
	digest      revision.Digest // of the last revision
	first, last uint64          // journal sequences of what went in
	events      uint64          // members now
	key         uint32
	revision    uint32 // number of the last revision; 0 = never published
	mask        uint16 // ranges that are set
	origin      uint8  // least live since the last revision
	flags       uint8

	valueAt, valueLen uint32 // values of the last revision in pane.values
}

// Flags of a window.
const (
	winDirty     = 1 << iota // a correction waits for the next mark
	winLive                  // the last revision is an UPSERT
	winFirstLate             // revision 1 fired LATE
	winAsserted              // an event went in since the last revision
	winUnseen                // changed since it was shown as a preview; with trigger.early only
)

// offsetRange is the first and last offset of one source partition.
type offsetRange struct{ first, last uint64 }

// pane holds all windows of one interval. Windows keep their place in it until the whole
// pane is released, so a place is an address, in snapshots too.
type pane struct {
	start, end envelope.EventTime
	fired      bool // W crossed the end
	unseen     bool // a window in it may be unseen

	wins        []win
	cells       []aggregate.Cell // per window: one a result
	values      []byte           // texts of the last revisions, for deltas; see values.go
	waste       int              // bytes of values that no window refers to any more
	ranges      []offsetRange    // per window: one a source partition, when they are few
	slots       []uint32         // open addressing by key number: place plus one
	corrections []uint32         // places of dirty windows of a fired pane

	final    bool                // the live path is done with it: W >= end + L at a mark
	finalNow envelope.IngestTime // of that mark

	reopened        map[reopened]bool // what REOPENs said of members; nil for nearly all panes
	reopenedChanged bool              // since the last Delta
	reopenedStored  bool              // a Delta wrote it

	changed []uint64 // bitmap of blocks changed since the last Delta
	stored  int      // blocks that Deltas wrote
}

// blockSize is how many windows of a pane stand in one pair of a Delta.
const blockSize = 16

func slotOf(key uint32, size int) uint32 {
	return uint32(uint64(key*0x9E3779B1) * uint64(size) >> 32)
}

// find answers the place of the key's window.
func (p *pane) find(key uint32) (int, bool) {
	if len(p.slots) == 0 {
		return 0, false
	}
	mask := uint32(len(p.slots) - 1)
	for at := slotOf(key, len(p.slots)); ; at = (at + 1) & mask {
		slot := p.slots[at]
		if slot == 0 {
			return 0, false
		}
		if p.wins[slot-1].key == key {
			return int(slot - 1), true
		}
	}
}

// reserve makes room for so many windows, so that growing does not copy them again and again.
func (p *pane) reserve(windows, cells, ranges int) {
	if windows == 0 {
		return
	}
	p.wins = make([]win, 0, windows)
	p.cells = make([]aggregate.Cell, 0, windows*cells)
	p.ranges = make([]offsetRange, 0, windows*ranges)
	p.slots = make([]uint32, slotsFor(windows))
}

// add makes the key's window.
func (p *pane) add(key uint32, cells, ranges int) int {
	at := len(p.wins)
	p.wins = append(p.wins, win{key: key})
	p.cells = grow(p.cells, cells)
	p.ranges = grow(p.ranges, ranges)
	if 4*len(p.wins) > 3*len(p.slots) {
		p.rehash()
	} else {
		p.put(at)
	}
	return at
}

// slotsFor answers the size of the table for so many windows: a power of two.
func slotsFor(windows int) int {
	if windows <= 8 {
		return 16
	}
	return 1 << bits.Len(uint(2*windows-1))
}

func (p *pane) rehash() {
	p.slots = make([]uint32, slotsFor(len(p.wins)))
	for at := range p.wins {
		p.put(at)
	}
}

func (p *pane) put(place int) {
	mask := uint32(len(p.slots) - 1)
	at := slotOf(p.wins[place].key, len(p.slots))
	for p.slots[at] != 0 {
		at = (at + 1) & mask
	}
	p.slots[at] = uint32(place + 1)
}

// touch notes that a window changed.
func (p *pane) touch(place int) {
	block := place / blockSize
	for block/64 >= len(p.changed) {
		p.changed = append(p.changed, 0)
	}
	p.changed[block/64] |= 1 << (block % 64)
}

// grow appends n zero elements.
func grow[T any](s []T, n int) []T {
	var zero T
	for range n {
		s = append(s, zero)
	}
	return s
}

// cellsOf answers the cells of a window.
func (o *Operator) cellsOf(p *pane, place int) []aggregate.Cell {
	n := len(o.program)
	return p.cells[place*n : place*n+n : place*n+n]
}

// rangesOf answers the offset ranges of a window; none when source partitions are many.
func (o *Operator) rangesOf(p *pane, place int) []offsetRange {
	n := len(o.ranges)
	return p.ranges[place*n : place*n+n : place*n+n]
}

package window

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// Format is the number of the checkpoint encoding; another one is refused.
const Format = 2

// First bytes of the keys of a checkpoint. Numbers in keys are big-endian with the sign
// bit turned, so that they sort.
const (
	pairMeta    = 'm' // format, policy, position, totals
	pairTracker = 't'
	pairWriter  = 'f' // + writer: frames had
	pairKey     = 'k' // + number: key
	pairBlock   = 'w' // + start, block: blockSize windows of a pane
	pairChunk   = 'i' // + bucket, place: ids of a stretch of event time
	pairMember  = 'r' // + start, 0: what REOPENs said of the members of a pane's windows
	pairReopens = 'o' // + key: what is remembered of its REOPENs
	pairPart    = 'p' // + place, key: a part of a REOPEN that is not whole

	pairSession    = 's' // + number: a session
	pairSessionKey = 'g' // + number of the key: what is held of it beside sessions
)

// removedPane names what a Delta must delete of a released pane.
type removedPane struct {
	start    envelope.EventTime
	blocks   int
	reopened bool
}

// Delta answers what changed since the last Delta as key-value pairs, to be written in
// one transaction; a nil value deletes. The first Delta of a fresh operator holds
// everything. Keys and values are fresh slices: put may keep them. After an error of
// put nothing is taken as written, and the next Delta holds it all again.
func (o *Operator) Delta(put func(key, value []byte) error) error {
	if o.failed != nil {
		return fmt.Errorf("the operator halted and its state is not to be stored: %w", o.failed)
	}
	if o.pending() {
		return errors.New("a checkpoint is asked for before all outputs were taken")
	}
	for _, step := range []func(func(key, value []byte) error) error{
		o.putMeta, o.putWriters, o.putKeys, o.putRemoved, o.putBlocks, o.putChunks, o.putMembers, o.putReopens,
	} {
		if err := step(put); err != nil {
			return err
		}
	}
	if o.sessions != nil {
		if err := o.sessions.putSessions(put); err != nil {
			return err
		}
		o.sessions.settleDelta()
	}
	o.settleDelta()
	return nil
}

func (o *Operator) putMeta(put func(key, value []byte) error) error {
	if o.trackerChanged {
		if err := put([]byte{pairTracker}, o.tracker.AppendSnapshot(nil)); err != nil {
			return err
		}
	}
	return put([]byte{pairMeta}, o.appendMeta(nil))
}

func (o *Operator) appendMeta(b []byte) []byte {
	b = binary.AppendUvarint(b, Format)
	b = binary.AppendUvarint(b, CoreVersion)
	b = appendText(b, o.cfg.Policy.Stream)
	b = appendText(b, o.cfg.Policy.PolicyGeneration())
	b = appendText(b, o.cfg.PolicyDigest)
	b = binary.AppendUvarint(b, uint64(o.cfg.Partition))
	for _, n := range [...]uint64{o.pos.Seq, uint64(o.pos.Index), o.seq} {
		b = binary.AppendUvarint(b, n)
	}
	for _, n := range [...]int64{int64(o.w), int64(o.data), o.ids.swept, int64(o.now)} {
		b = binary.AppendVarint(b, n)
	}
	b = binary.AppendUvarint(b, o.epoch)
	for _, n := range o.totals {
		b = binary.AppendUvarint(b, n)
	}
	windows, ids, keys := o.Sizes() // to see on restore that all is there
	members, reopens := o.reopenSizes()
	for _, n := range [...]int{windows, ids, keys, len(o.writers), members, reopens} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return o.appendFinals(append(b, o.idDigest[:]...))
}

// reopenSizes answers how many panes have something from REOPENs, and how many pairs the
// REOPENs of all keys have.
func (o *Operator) reopenSizes() (members, reopens int) {
	for _, p := range o.order {
		if len(p.reopened) > 0 {
			members++
		}
	}
	for _, k := range o.reopens {
		reopens += 1 + len(k.bodies)
	}
	return members, reopens
}

// appendFinals appends the final panes, which are few: the first ones.
func (o *Operator) appendFinals(b []byte) []byte {
	for _, p := range o.order {
		if p.final {
			b = binary.AppendVarint(binary.AppendVarint(b, int64(p.start)), int64(p.finalNow))
		}
	}
	return b
}

func (o *Operator) putWriters(put func(key, value []byte) error) error {
	for _, name := range slices.Sorted(maps.Keys(o.writers)) {
		f := o.writers[name]
		if !f.changed {
			continue
		}
		value := f.lost.append(f.had.append(nil))
		if err := put(append([]byte{pairWriter}, name...), value); err != nil {
			return err
		}
	}
	return nil
}

func (s spans) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	for _, p := range s {
		b = binary.AppendUvarint(binary.AppendUvarint(b, p.first), p.last)
	}
	return b
}

func (o *Operator) putKeys(put func(key, value []byte) error) error {
	for _, n := range o.keys.sortedChanged() {
		e := &o.keys.entries[n]
		var value []byte
		switch {
		case e.refs > 0:
			value = []byte(e.name)
		case !e.stored:
			continue
		}
		if err := put(binary.BigEndian.AppendUint32([]byte{pairKey}, n), value); err != nil {
			return err
		}
	}
	return nil
}

// putRemoved deletes what is gone before anything is put under the same key again.
func (o *Operator) putRemoved(put func(key, value []byte) error) error {
	for _, r := range o.removed {
		for block := range r.blocks {
			if err := put(pairAt(pairBlock, int64(r.start), block), nil); err != nil {
				return err
			}
		}
	}
	for _, r := range o.removed {
		if r.reopened {
			if err := put(pairAt(pairMember, int64(r.start), 0), nil); err != nil {
				return err
			}
		}
	}
	for _, r := range o.reopensGone {
		for n := range r.pairs {
			if err := put(reopenPair(r.key, n), nil); err != nil {
				return err
			}
		}
	}
	for _, r := range o.ids.removed {
		for place := range r.chunks {
			if err := put(pairAt(pairChunk, r.bucket, place), nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *Operator) putBlocks(put func(key, value []byte) error) error {
	for _, p := range o.order {
		for i, word := range p.changed {
			for ; word != 0; word &= word - 1 {
				block := 64*i + bits.TrailingZeros64(word)
				if err := put(pairAt(pairBlock, int64(p.start), block), o.appendBlock(nil, p, block)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (o *Operator) putChunks(put func(key, value []byte) error) error {
	for _, number := range slices.Sorted(maps.Keys(o.ids.buckets)) {
		for place, chunk := range o.ids.buckets[number].chunks {
			if !o.ids.chunks[chunk].dirty {
				continue
			}
			if err := put(pairAt(pairChunk, number, place), o.ids.appendChunk(nil, chunk)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *Operator) putMembers(put func(key, value []byte) error) error {
	for _, p := range o.order {
		if !p.reopenedChanged {
			continue
		}
		if err := put(pairAt(pairMember, int64(p.start), 0), p.appendReopened(nil)); err != nil {
			return err
		}
	}
	return nil
}

// appendReopened appends what REOPENs said of members, by window and hash.
func (p *pane) appendReopened(b []byte) []byte {
	known := slices.SortedFunc(maps.Keys(p.reopened), func(a, b reopened) int {
		return cmp.Or(cmp.Compare(a.place, b.place), bytes.Compare(a.hash[:], b.hash[:]))
	})
	for _, r := range known {
		there := byte(0)
		if p.reopened[r] {
			there = 1
		}
		b = append(append(binary.AppendUvarint(b, uint64(r.place)), there), r.hash[:]...)
	}
	return b
}

// reopenPair answers the key of pair n of what is remembered of a key's REOPENs: 0 is the
// head, the others are parts.
func reopenPair(key string, n int) []byte {
	if n == 0 {
		return append([]byte{pairReopens}, key...)
	}
	return append(binary.BigEndian.AppendUint32([]byte{pairPart}, uint32(n-1)), key...)
}

func (o *Operator) putReopens(put func(key, value []byte) error) error {
	for _, key := range slices.Sorted(maps.Keys(o.reopens)) {
		k := o.reopens[key]
		if !k.changed {
			continue
		}
		if err := put(reopenPair(key, 0), k.appendHead(nil)); err != nil {
			return err
		}
		for n := 1; n < max(k.stored, 1+len(k.bodies)); n++ {
			var body []byte
			if n <= len(k.bodies) {
				body = k.bodies[n-1]
			}
			if err := put(reopenPair(key, n), body); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *keyReopens) appendHead(b []byte) []byte {
	acted := byte(0)
	if k.acted {
		acted = 1
	}
	b = append(b, acted)
	b = binary.AppendUvarint(binary.AppendUvarint(b, k.place.Seq), uint64(k.place.Index))
	b = binary.AppendVarint(b, int64(k.now))
	b = binary.AppendUvarint(b, uint64(len(k.values)))
	for _, name := range k.values {
		b = appendText(b, name)
	}
	return b
}

// settleDelta notes that everything is written.
func (o *Operator) settleDelta() {
	o.trackerChanged = false
	for _, f := range o.writers {
		f.changed = false
	}
	for _, n := range o.keys.changed {
		e := &o.keys.entries[n]
		e.changed, e.stored = false, e.refs > 0
	}
	o.keys.changed = o.keys.changed[:0]
	for _, p := range o.order {
		clear(p.changed)
		p.stored = blocksOf(p)
		p.reopenedChanged, p.reopenedStored = false, len(p.reopened) > 0
	}
	for _, k := range o.reopens {
		k.changed, k.stored = false, 1+len(k.bodies)
	}
	o.removed, o.reopensGone, o.ids.removed = nil, nil, nil
	for _, b := range o.ids.buckets {
		for _, chunk := range b.chunks {
			o.ids.chunks[chunk].dirty = false
		}
		b.stored = len(b.chunks)
	}
}

func blocksOf(p *pane) int { return (len(p.wins) + blockSize - 1) / blockSize }

// pairAt answers the key of a block or chunk.
func pairAt(kind byte, number int64, place int) []byte {
	key := append(make([]byte, 0, 13), kind)
	key = binary.BigEndian.AppendUint64(key, uint64(number)^1<<63)
	return binary.BigEndian.AppendUint32(key, uint32(place))
}

func (o *Operator) appendBlock(b []byte, p *pane, block int) []byte {
	for place := block * blockSize; place < min(len(p.wins), (block+1)*blockSize); place++ {
		b = o.appendWindow(b, p, place)
	}
	return b
}

func (o *Operator) appendWindow(b []byte, p *pane, place int) []byte {
	w := &p.wins[place]
	b = append(b, w.flags, w.origin)
	for _, n := range [...]uint64{uint64(w.key), uint64(w.revision), w.events, w.first, w.last, uint64(w.mask)} {
		b = binary.AppendUvarint(b, n)
	}
	b = append(b, w.idDigest[:]...)
	if w.revision > 0 {
		b = append(b, w.digest[:]...)
	}
	for at, r := range o.rangesOf(p, place) {
		if w.mask&(1<<at) != 0 {
			b = binary.AppendUvarint(binary.AppendUvarint(b, r.first), r.last)
		}
	}
	for i, cell := range o.cellsOf(p, place) {
		b = o.program[i].AppendState(b, &cell)
	}
	return appendText(b, p.values[w.valueAt:w.valueAt+w.valueLen])
}

func (x *idIndex) appendChunk(b []byte, chunk uint32) []byte {
	c := &x.chunks[chunk]
	b = slices.Grow(b, 45*len(c.entries))
	for i := range c.entries {
		e := &c.entries[i]
		b = append(b, byte(e.flags))
		b = append(b, e.hash[:]...)
		b = append(b, e.digest[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(e.time))
		b = binary.BigEndian.AppendUint32(b, e.key)
		if e.flags&(idRetraction|idDead) == idRetraction {
			target := x.targets[chunk<<chunkBits|uint32(i)]
			b = append(b, target[:]...)
		}
	}
	return b
}

func appendText[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

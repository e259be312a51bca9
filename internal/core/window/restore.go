package window

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tidemark-mesh/tidemark/internal/core/aggregate"
	"github.com/tidemark-mesh/tidemark/internal/core/watermark"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// ErrFormat is answered by Restore for a checkpoint that another version, or another
// policy, wrote: it is whole, but not for this operator.
var ErrFormat = errors.New("checkpoint does not fit")

// Restore answers an Operator from all key-value pairs that Deltas left behind, in any
// order. Nothing of what each yields is kept. It goes on exactly as the one that wrote
// them would have. An error says what is wrong; the state can be rebuilt from the journal.
func Restore(cfg Config, each func(yield func(key, value []byte) error) error) (*Operator, error) {
	o, err := New(cfg)
	if err != nil {
		return nil, err
	}
	r := restorer{o: o, early: make(map[string][]byte)}
	if o.sessions != nil {
		r.sessions = &sessionReader{s: o.sessions, rows: make(map[uint64]uint32)}
	}
	if err := each(r.take); err != nil {
		return nil, err
	}
	if err := r.finish(); err != nil {
		return nil, fmt.Errorf("checkpoint of %s, key partition %d: %w", cfg.Policy.PolicyGeneration(), cfg.Partition, err)
	}
	return o, nil
}

// restorer puts pairs in their places. Blocks of a pane and chunks of a bucket are
// appended in order; one that comes early waits.
type restorer struct {
	o           *Operator
	early       map[string][]byte
	sessions    *sessionReader // of a policy with session windows
	meta, marks bool
	sizes       [6]uint64    // windows, ids, keys, writers, panes and pairs with REOPENs that there must be
	finals      []byte       // see appendFinals
	members     []memberPair // for panes that may not be back yet
}

// memberPair is what REOPENs said of the members of the pane at start.
type memberPair struct {
	start int64
	value []byte
}

func (r *restorer) take(key, value []byte) error {
	if err := r.pair(key, value); err != nil {
		return fmt.Errorf("checkpoint of %s, key partition %d, pair %x: %w", r.o.cfg.Policy.PolicyGeneration(), r.o.cfg.Partition, key, err)
	}
	return nil
}

func (r *restorer) pair(key, value []byte) (err error) {
	if len(key) == 0 {
		return errors.New("it has no key")
	}
	switch rest := key[1:]; key[0] {
	case pairMeta:
		r.meta = true
		return r.readMeta(value)
	case pairTracker:
		r.marks = true
		r.o.tracker, err = watermark.Restore(r.o.cfg.Policy, value)
		return err
	case pairWriter:
		return r.writer(string(rest), value)
	case pairKey:
		if len(rest) != 4 || len(value) == 0 {
			return errShape
		}
		return r.o.keys.place(binary.BigEndian.Uint32(rest), string(value))
	case pairBlock, pairChunk:
		if len(rest) != 12 {
			return errShape
		}
		return r.ordered(key, value)
	case pairMember:
		if len(rest) != 12 {
			return errShape
		}
		r.members = append(r.members, memberPair{start: int64(binary.BigEndian.Uint64(rest) ^ 1<<63), value: slices.Clone(value)})
		return nil
	case pairReopens:
		return r.reopens(string(rest), value)
	case pairPart:
		return r.part(rest, value)
	case pairSession, pairSessionKey:
		if len(rest) != 4 || r.sessions == nil {
			return errShape
		}
		if key[0] == pairSession {
			return r.sessions.session(binary.BigEndian.Uint32(rest), value)
		}
		return r.sessions.key(binary.BigEndian.Uint32(rest), value)
	}
	return fmt.Errorf("unknown kind %q: a newer version wrote it: %w", key[0], ErrFormat)
}

var errShape = errors.New("it is damaged")

func (r *restorer) writer(name string, value []byte) error {
	d := decoder{rest: value}
	r.o.writers[name] = &writerFrames{had: d.spans(), lost: d.spans()}
	return d.end()
}

func (d *decoder) spans() (s spans) {
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		p := span{d.uvarint(), d.uvarint()}
		if p.first == 0 || p.last < p.first || len(s) > 0 && p.first <= s[len(s)-1].last {
			d.fail()
		}
		s = append(s, p)
	}
	return s
}

// ordered appends a block or chunk, and those that waited for it.
func (r *restorer) ordered(key, value []byte) error {
	kind, number := key[0], int64(binary.BigEndian.Uint64(key[1:9])^1<<63)
	place := int(binary.BigEndian.Uint32(key[9:]))
	for at := place; ; at++ {
		if kind == pairBlock && at != r.o.nextBlock(number) || kind == pairChunk && at != r.o.ids.nextChunk(number) {
			r.early[string(key)] = slices.Clone(value)
			return nil
		}
		if err := r.put(kind, number, value); err != nil {
			return err
		}
		next := string(pairAt(kind, number, at+1))
		waited, ok := r.early[next]
		if !ok {
			return nil
		}
		delete(r.early, next)
		value = waited
	}
}

func (r *restorer) put(kind byte, number int64, value []byte) error {
	if kind == pairBlock {
		return r.o.readBlock(envelope.EventTime(number), value)
	}
	return r.o.ids.readChunk(number, value)
}

// finish checks that all is there and makes what follows from it: references to keys,
// which panes have fired, which corrections wait.
func (r *restorer) finish() error {
	o := r.o
	switch {
	case !r.meta || !r.marks:
		return errors.New("it is not whole")
	case len(r.early) > 0:
		return fmt.Errorf("%d blocks of windows or ids are missing", len(r.early))
	}
	for _, p := range o.order {
		p.fired, p.unseen = o.tracker.W() >= p.end, true
		for place := range p.wins {
			if err := o.hold(p.wins[place].key); err != nil {
				return err
			}
			if p.wins[place].flags&winDirty != 0 {
				p.corrections = append(p.corrections, uint32(place))
				o.dirty++
			}
		}
		p.stored = blocksOf(p)
		p.rehash()
	}
	if r.sessions != nil {
		if err := r.sessions.finish(); err != nil {
			return err
		}
	}
	if err := errors.Join(r.readFinals(), r.readMembers(), r.readParts()); err != nil {
		return err
	}
	for chunk := range o.ids.chunks {
		for i, e := range o.ids.chunks[chunk].entries {
			if e.flags&idDead != 0 {
				continue
			}
			if err := o.hold(e.key); err != nil {
				return err
			}
			o.ids.link(uint32(chunk)<<chunkBits | uint32(i))
		}
	}
	for _, b := range o.ids.buckets {
		b.stored = len(b.chunks)
	}
	o.trackerChanged = false
	windows, ids, keys := o.Sizes()
	members, reopens := o.reopenSizes()
	if got := [...]uint64{uint64(windows), uint64(ids), uint64(keys), uint64(len(o.writers)), uint64(members), uint64(reopens)}; got != r.sizes {
		return fmt.Errorf("windows, ids, keys, writers, panes and pairs with REOPENs should number %v, they are %v: pairs are missing", r.sizes, got)
	}
	return o.keys.settle()
}

func (o *Operator) hold(key uint32) error {
	if key >= uint32(len(o.keys.entries)) {
		return fmt.Errorf("key number %d is referred to, but not stored", key)
	}
	o.keys.retain(key)
	return nil
}

func (r *restorer) readMeta(value []byte) error {
	o, d := r.o, decoder{rest: value}
	if f := d.uvarint(); d.err == nil && f != Format {
		return fmt.Errorf("it has format %d, this version reads format %d; use the version that wrote it, or rebuild the state from the journal: %w", f, Format, ErrFormat)
	}
	if v := d.uvarint(); d.err == nil && v != CoreVersion {
		return fmt.Errorf("core version %d wrote it, this is core version %d; start a new generation with rollout start: %w", v, CoreVersion, ErrFormat)
	}
	p := o.cfg.Policy
	for _, want := range [...]string{p.Stream, p.PolicyGeneration(), o.cfg.PolicyDigest} {
		if got := d.text(); d.err == nil && got != want {
			return fmt.Errorf("it belongs to %q, not to %q: %w", got, want, ErrFormat)
		}
	}
	if n := d.uvarint(); d.err == nil && n != uint64(o.cfg.Partition) {
		return fmt.Errorf("it belongs to key partition %d: %w", n, ErrFormat)
	}
	o.pos.Seq, o.pos.Index, o.seq = d.uvarint(), uint32(d.uvarint()), d.uvarint()
	o.nextIndex = uint64(o.pos.Index)
	o.w, o.data, o.ids.swept = envelope.EventTime(d.varint()), envelope.EventTime(d.varint()), d.varint()
	o.now, o.epoch = envelope.IngestTime(d.varint()), d.uvarint()
	for i := range o.totals {
		o.totals[i] = d.uvarint()
	}
	for i := range r.sizes {
		r.sizes[i] = d.uvarint()
	}
	d.fill(o.idDigest[:])
	r.finals = slices.Clone(d.rest)
	return d.err
}

// nextBlock answers the place of the block that comes next in the pane at start.
func (o *Operator) nextBlock(start int64) int {
	p := o.panes[start]
	switch {
	case p == nil:
		return 0
	case len(p.wins)%blockSize != 0:
		return -1 // a short block is the last
	}
	return len(p.wins) / blockSize
}

func (o *Operator) readBlock(start envelope.EventTime, value []byte) error {
	// The start of a window that is cut at the beginning of time is no aligned one, but
	// it lies in its own window all the same.
	window := o.grid.last(start)
	if window.Start != start {
		return errShape
	}
	p := o.panes[int64(start)]
	if p == nil {
		p = o.addPane(start, window.End)
	}
	d := decoder{rest: value}
	for n := 0; len(d.rest) > 0 && d.err == nil; n++ {
		if n == blockSize {
			return errShape
		}
		o.readWindow(p, &d)
	}
	return d.err
}

func (o *Operator) readWindow(p *pane, d *decoder) {
	w := win{flags: d.byte(), origin: d.byte()}
	w.key, w.revision = d.uint32(), d.uint32()
	w.events, w.first, w.last = d.uvarint(), d.uvarint(), d.uvarint()
	w.mask = uint16(d.uvarint())
	d.fill(w.idDigest[:])
	if w.revision > 0 {
		d.fill(w.digest[:])
	}
	for at := range o.ranges {
		var r offsetRange
		if w.mask&(1<<at) != 0 {
			r = offsetRange{first: d.uvarint(), last: d.uvarint()}
		}
		p.ranges = append(p.ranges, r)
	}
	for i := range o.program {
		var cell aggregate.Cell
		d.state(&o.program[i], &cell)
		p.cells = append(p.cells, cell)
	}
	value := d.bytes()
	w.valueAt, w.valueLen = uint32(len(p.values)), uint32(len(value))
	p.values = append(p.values, value...)
	d.check(value, len(o.program))
	p.wins = append(p.wins, w)
}

// nextChunk answers the place of the chunk that comes next in a bucket.
func (x *idIndex) nextChunk(bucket int64) int {
	b := x.buckets[bucket]
	if b == nil {
		return 0
	}
	return len(b.chunks)
}

func (x *idIndex) readChunk(bucket int64, value []byte) error {
	b := x.buckets[bucket]
	if b == nil {
		b = &idBucket{}
		x.buckets[bucket] = b
	}
	chunk := x.newChunk(bucket, len(b.chunks))
	b.chunks = append(b.chunks, chunk)
	c := &x.chunks[chunk]
	d := decoder{rest: value}
	for len(d.rest) > 0 && d.err == nil {
		if len(c.entries) == cap(c.entries) {
			return errShape
		}
		e := idEntry{flags: uint32(d.byte())}
		d.fill(e.hash[:])
		d.fill(e.digest[:])
		var tail [12]byte
		d.fill(tail[:])
		e.time = envelope.EventTime(binary.BigEndian.Uint64(tail[:8]))
		e.key = binary.BigEndian.Uint32(tail[8:])
		if e.flags&(idRetraction|idDead) == idRetraction {
			var target [16]byte
			d.fill(target[:])
			x.targets[chunk<<chunkBits|uint32(len(c.entries))] = target
		}
		c.entries = append(c.entries, e)
	}
	return d.err
}

// decoder takes a value apart; after the first error it answers zeros.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail() {
	d.err, d.rest = errShape, nil
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) varint() int64 {
	u := d.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (d *decoder) uint32() uint32 {
	v := d.uvarint()
	if v > math.MaxUint32 {
		d.fail()
	}
	return uint32(v)
}

func (d *decoder) byte() byte {
	var b [1]byte
	d.fill(b[:])
	return b[0]
}

func (d *decoder) fill(dst []byte) {
	if len(d.rest) < len(dst) {
		d.fail()
		return
	}
	copy(dst, d.rest)
	d.rest = d.rest[len(dst):]
}

func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.fail()
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) text() string { return string(d.bytes()) }

func (d *decoder) state(f *aggregate.Compiled, cell *aggregate.Cell) {
	if d.err != nil {
		return
	}
	rest, err := f.DecodeState(d.rest, cell)
	if err != nil {
		d.fail()
		return
	}
	d.rest = rest
}

// check makes sure that the texts of a window's last values can be read.
func (d *decoder) check(value []byte, results int) {
	if len(value) == 0 {
		return
	}
	v := decoder{rest: value}
	for range results {
		head := v.uvarint()
		if head>>1 > uint64(len(v.rest)) {
			v.fail()
			break
		}
		v.rest = v.rest[head>>1:]
	}
	if v.end() != nil {
		d.fail()
	}
}

func (d *decoder) end() error {
	if d.err == nil && len(d.rest) > 0 {
		d.fail()
	}
	return d.err
}

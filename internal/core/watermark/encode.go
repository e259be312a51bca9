package watermark

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// format is the first byte of a snapshot.
const format = 1

// Flags of one partition in a snapshot.
const (
	flagMarked = 1 << iota
	flagIdle
	flagSilent
	flagExcluded
	flagFinished
)

// AppendSnapshot appends everything the Tracker knows.
func (t *Tracker) AppendSnapshot(buf []byte) []byte {
	buf = append(buf, format)
	buf = binary.AppendVarint(buf, int64(t.w))
	buf = binary.AppendVarint(buf, int64(t.data))
	buf = binary.AppendUvarint(buf, uint64(len(t.parts)))
	for i := range t.parts {
		p := &t.parts[i]
		buf = append(buf, p.flags())
		for _, v := range [...]uint64{p.epoch, p.heard, p.generation, p.offset, p.quietForMs} {
			buf = binary.AppendUvarint(buf, v)
		}
		buf = binary.AppendVarint(buf, int64(p.maxEventTime))
		buf = binary.AppendVarint(buf, p.ingestNow)
	}
	for _, b := range t.bases {
		if !b.set {
			buf = append(buf, 0)
			continue
		}
		buf = append(buf, 1)
		buf = binary.AppendVarint(buf, b.now)
	}
	return buf
}

func (p *part) flags() byte {
	var f byte
	for i, set := range [...]bool{p.marked, p.idle, p.silent, p.excluded, p.finished} {
		if set {
			f |= 1 << i
		}
	}
	return f
}

// Restore answers a Tracker of the policy from what AppendSnapshot wrote. An error
// means that the snapshot is damaged, of another format or of another policy.
func Restore(p *policy.StreamTimePolicy, snapshot []byte) (*Tracker, error) {
	t := New(p)
	r := reader{rest: snapshot}
	if f := r.byte(); r.err == nil && f != format {
		return nil, fmt.Errorf("watermark snapshot has format %d, this version reads %d: use the version that wrote it, or rebuild the state from the journal", f, format)
	}
	t.w, t.data = envelope.EventTime(r.varint()), envelope.EventTime(r.varint())
	if n := r.uvarint(); r.err == nil && n != uint64(len(t.parts)) {
		return nil, fmt.Errorf("watermark snapshot has %d source partitions, the policy has %d: it belongs to another policy", n, len(t.parts))
	}
	for i := range t.parts {
		t.parts[i].read(&r)
	}
	for i := range t.bases {
		if r.byte() == 1 {
			t.bases[i] = base{now: r.varint(), set: true}
		}
	}
	if r.err == nil && len(r.rest) > 0 {
		r.err = fmt.Errorf("%d bytes too many", len(r.rest))
	}
	if r.err != nil {
		return nil, fmt.Errorf("watermark snapshot is damaged: %w", r.err)
	}
	return t, nil
}

func (p *part) read(r *reader) {
	f := r.byte()
	p.marked, p.idle, p.silent = f&flagMarked != 0, f&flagIdle != 0, f&flagSilent != 0
	p.excluded, p.finished = f&flagExcluded != 0, f&flagFinished != 0
	p.epoch, p.heard, p.generation = r.uvarint(), r.uvarint(), r.uvarint()
	p.offset, p.quietForMs = r.uvarint(), r.uvarint()
	p.maxEventTime = envelope.EventTime(r.varint())
	p.ingestNow = r.varint()
}

// reader takes a snapshot apart; after the first error it answers zeros.
type reader struct {
	rest []byte
	err  error
}

var errShort = errors.New("it ends too early")

func (r *reader) byte() byte {
	if r.err != nil || len(r.rest) == 0 {
		r.fail()
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	return r.took(v, n)
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *reader) took(v uint64, n int) uint64 {
	if r.err != nil || n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) fail() {
	if r.err == nil {
		r.err = errShort
	}
	r.rest = nil
}

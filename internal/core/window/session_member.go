package window

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// A member stands in its session's blob as a fixed head, its id and its values: numbers
// as 8 bytes, texts behind their length.
const (
	memberTime   = 0  // int64
	memberHash   = 8  // of source and id
	memberSeq    = 24 // journal sequence
	memberOffset = 32 // source offset
	memberRow    = 40 // number of the published row that holds it; 0 = none
	memberID     = 44 // length of the id
	memberTail   = 48 // length of the values
	memberSource = 52 // place in sessions.sources
	memberRange  = 54 // place in Operator.ranges plus one; 0 = none
	memberHead   = 56
)

// member is the view of one member in a blob.
type member []byte

func (m member) time() envelope.EventTime {
	return envelope.EventTime(binary.LittleEndian.Uint64(m[memberTime:]))
}

func (m member) hash() [16]byte { return [16]byte(m[memberHash : memberHash+16]) }

func (m member) seq() uint64 { return binary.LittleEndian.Uint64(m[memberSeq:]) }

func (m member) offset() uint64 { return binary.LittleEndian.Uint64(m[memberOffset:]) }

func (m member) row() uint32 { return binary.LittleEndian.Uint32(m[memberRow:]) }

func (m member) setRow(n uint32) { binary.LittleEndian.PutUint32(m[memberRow:], n) }

func (m member) source() int { return int(binary.LittleEndian.Uint16(m[memberSource:])) }

// span answers the place of the member's range, or -1.
func (m member) span() int { return int(binary.LittleEndian.Uint16(m[memberRange:])) - 1 }

func (m member) idBytes() []byte {
	n := binary.LittleEndian.Uint32(m[memberID:])
	return m[memberHead : memberHead+n]
}

// id answers the id without a copy: it is valid until the blob changes.
func (m member) id() string { return aliasText(m.idBytes()) }

func (m member) values() []byte {
	n := binary.LittleEndian.Uint32(m[memberID:])
	return m[memberHead+n:]
}

func aliasText(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// firstMember cuts the first member off a blob's bytes.
func firstMember(b []byte) (m member, rest []byte) {
	n := memberHead + binary.LittleEndian.Uint32(b[memberID:]) + binary.LittleEndian.Uint32(b[memberTail:])
	return member(b[:n:n]), b[n:]
}

// sessionEvent is an event on its way into a session: from the journal or from a REOPEN.
type sessionEvent struct {
	id        string
	source    string
	time      envelope.EventTime
	hash      [16]byte
	seq       uint64
	partition uint32
	offset    uint64
	origin    envelope.Origin
	reopened  bool
}

// appendMember adds the event to the session's members; value answers what it holds of a
// declared value.
func (s *sessions) appendMember(x *session, ev *sessionEvent, values []envelope.Value) {
	tail := s.tailSize(values)
	m := member(s.store.extend(&x.members, memberHead+len(ev.id)+tail))
	binary.LittleEndian.PutUint64(m[memberTime:], uint64(ev.time))
	copy(m[memberHash:], ev.hash[:])
	binary.LittleEndian.PutUint64(m[memberSeq:], ev.seq)
	binary.LittleEndian.PutUint64(m[memberOffset:], ev.offset)
	m.setRow(0)
	binary.LittleEndian.PutUint32(m[memberID:], uint32(len(ev.id)))
	binary.LittleEndian.PutUint32(m[memberTail:], uint32(tail))
	binary.LittleEndian.PutUint16(m[memberSource:], uint16(s.sourceAt(ev.source)))
	binary.LittleEndian.PutUint16(m[memberRange:], uint16(s.o.rangeOf(ev.source, ev.partition)+1))
	copy(m[memberHead:], ev.id)
	s.putValues(m[memberHead+len(ev.id):], values)
	x.count++
}

// sourceAt answers the place of a source of the policy. Most events have that of the one
// before them.
func (s *sessions) sourceAt(name string) int {
	if s.sources[s.source] != name {
		s.source, _ = slices.BinarySearch(s.sources, name)
	}
	return s.source
}

func (s *sessions) tailSize(values []envelope.Value) (n int) {
	for i := range s.args {
		if n += 8; s.args[i].text {
			n += len(values[s.args[i].at].Text) - 4
		}
	}
	return n
}

func (s *sessions) putValues(b []byte, values []envelope.Value) {
	for i := range s.args {
		v := &values[s.args[i].at]
		if !s.args[i].text {
			binary.LittleEndian.PutUint64(b, uint64(v.Int))
			b = b[8:]
			continue
		}
		binary.LittleEndian.PutUint32(b, uint32(len(v.Text)))
		b = b[4+copy(b[4:], v.Text):]
	}
}

// readValues fills the values of a member in, one for each of args; texts are valid until
// the blob changes.
func (s *sessions) readValues(b []byte, values []envelope.Value) {
	for i := range s.args {
		if !s.args[i].text {
			values[i].Int = int64(binary.LittleEndian.Uint64(b))
			b = b[8:]
			continue
		}
		n := binary.LittleEndian.Uint32(b)
		values[i].Text = aliasText(b[4 : 4+n])
		b = b[4+n:]
	}
}

// missing answers the first value that the open frame does not have, or "".
func (s *sessions) missing() error {
	for i := range s.args {
		if s.args[i].at < 0 {
			return fmt.Errorf("its frame was written before the business stream declared the value %q; start a generation whose aggregates do not use it", s.args[i].name)
		}
	}
	return nil
}

// findMember answers the place and length of a member in the session's blob.
func (s *sessions) findMember(x *session, at envelope.EventTime, hash [16]byte) (from, size int, found bool) {
	all := s.store.bytes(x.members)
	for rest := all; len(rest) > 0; {
		m, more := firstMember(rest)
		if m.time() == at && m.hash() == hash {
			return len(all) - len(rest), len(m), true
		}
		rest = more
	}
	return 0, 0, false
}

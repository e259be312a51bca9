package projector

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/tidemark-mesh/tidemark/internal/core/projection"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// rowOrder is the order of the rows of a view.
//
// Windows of fixed bounds are ordered by start, end, key, so that rows are written where
// they belong on the disk: they fire together at a mark, in this order, and land side by
// side. One key's windows are found by a seek for each window. (With the key first every
// firing would touch a page for every key: measured at 100,000 keys that was five times
// the bytes written.)
//
// Sessions have bounds of their own for every key, so that there is nothing to seek by:
// they are ordered by key, end, start. The current sessions of a key never overlap, so
// the one that reaches into a range is found by its end in one seek.
type rowOrder bool

const (
	byWindow rowOrder = false
	byKey    rowOrder = true
)

// orderOf answers the order of the rows of a policy.
func orderOf(p *policy.StreamTimePolicy) rowOrder { return p.Window.Kind == policy.Session }

// Times in row keys are big-endian with the sign bit flipped, so that byte order is time
// order.
const (
	timeBytes = 8
	signBit   = 1 << 63
)

func appendTime(dst []byte, t envelope.EventTime) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(t)^signBit)
}

func readTime(raw []byte) envelope.EventTime {
	return envelope.EventTime(binary.BigEndian.Uint64(raw) ^ signBit)
}

// rowKey appends the key of the row of one window.
func (o rowOrder) rowKey(dst []byte, key string, w revision.Window) []byte {
	if o == byKey {
		return appendTime(appendTime(appendKey(dst, key), w.End), w.Start)
	}
	return append(appendTime(appendTime(dst, w.Start), w.End), key...)
}

// split answers the parts of a row key; key may alias it.
func (o rowOrder) split(rowKey []byte) (w revision.Window, key []byte) {
	if o == byKey {
		at := len(rowKey) - 2*timeBytes
		w.End, w.Start = readTime(rowKey[at:]), readTime(rowKey[at+timeBytes:])
		return w, bytes.ReplaceAll(rowKey[:at-len(keyEnd)], []byte(keyZero), []byte{0})
	}
	w.Start, w.End = readTime(rowKey), readTime(rowKey[timeBytes:])
	return w, rowKey[2*timeBytes:]
}

// A business key in front of a row key is ended so that no key is the beginning of
// another and byte order is that of the keys.
const (
	keyZero = "\x00\xff" // stands for a zero byte
	keyEnd  = "\x00\x00"
	keyPast = "\x00\x01" // instead of keyEnd: behind every row of the key
)

// appendKey appends what the row keys of one business key begin with, ordered by key.
func appendKey(dst []byte, key string) []byte { return append(appendKeyText(dst, key), keyEnd...) }

// pastKey appends the row key behind every row of a business key, ordered by key.
func pastKey(dst []byte, key string) []byte { return append(appendKeyText(dst, key), keyPast...) }

func appendKeyText(dst []byte, key string) []byte {
	for i := 0; i < len(key); i++ {
		if key[i] == 0 {
			dst = append(dst, keyZero...)
		} else {
			dst = append(dst, key[i])
		}
	}
	return dst
}

// A row's value: op (1 byte), revision (8 bytes, big-endian), digest (32 bytes), and the
// revision exactly as it stands in the revisions stream.
const (
	opUpsert  = 1
	opRetract = 2
	rowHeader = 1 + 8 + len(revision.Digest{})
)

// putRowHeader fills the first rowHeader bytes of value.
func putRowHeader(value []byte, r *revision.Revision, digest revision.Digest) {
	value[0] = opUpsert
	if r.Op == revision.Retract {
		value[0] = opRetract
	}
	binary.BigEndian.PutUint64(value[1:], r.Revision)
	copy(value[9:], digest[:])
}

// rowHead answers the accepted head that a row's value stands for; no value is no head.
func rowHead(value []byte) (projection.Current, error) {
	if value == nil {
		return projection.Current{}, nil
	}
	if len(value) < rowHeader {
		return projection.Current{}, fmt.Errorf("a row of the view has %d bytes, fewer than its head of %d", len(value), rowHeader)
	}
	head := projection.Current{Revision: binary.BigEndian.Uint64(value[1:])}
	copy(head.Digest[:], value[9:rowHeader])
	return head, nil
}

func rowRetracted(value []byte) bool { return value[0] == opRetract }

func rowJSON(value []byte) []byte { return value[rowHeader:] }

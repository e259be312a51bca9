package projector

import (
	"encoding/binary"
	"fmt"

	"github.com/tidemark-mesh/tidemark/internal/core/projection"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// A row's key in the view is the window's start, its end, then the business key, so that
// rows are written where they belong on the disk: windows fire together at a mark, in
// this order, and land side by side. One key's windows are found by a seek for each
// window. (With the business key first every firing would touch a page for every key:
// measured at 100,000 keys that was five times the bytes written.) Times are big-endian
// with the sign bit flipped, so that byte order is time order.
const (
	timeBytes = 8
	signBit   = 1 << 63
)

func appendTime(dst []byte, t envelope.EventTime) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(t)^signBit)
}

// appendRowKey appends the key of the row of one window.
func appendRowKey(dst []byte, key string, w revision.Window) []byte {
	return append(appendTime(appendTime(dst, w.Start), w.End), key...)
}

// splitRowKey answers the parts of a row's key; key aliases rowKey.
func splitRowKey(rowKey []byte) (w revision.Window, key []byte) {
	w.Start = envelope.EventTime(binary.BigEndian.Uint64(rowKey) ^ signBit)
	w.End = envelope.EventTime(binary.BigEndian.Uint64(rowKey[timeBytes:]) ^ signBit)
	return w, rowKey[2*timeBytes:]
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

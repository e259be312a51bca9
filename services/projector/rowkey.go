package projector

import (
	"encoding/binary"
	"fmt"

	"github.com/tidemark-mesh/tidemark/internal/core/projection"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// A row's key in the view is the business key, then the window's start, then its end, so
// that one key's windows lie side by side in time. Key bytes are written so that the byte
// order of row keys is the order of (key, start, end): a zero byte as 00 FF, the end of
// the key as 00 01. Times are big-endian with the sign bit flipped.
const (
	keyEscape  = 0x00
	keyZero    = 0xFF
	keyEnd     = 0x01
	boundBytes = 8
	signBit    = 1 << 63
)

// appendKey appends a business key with its terminator.
func appendKey(dst []byte, key string) []byte {
	for i := 0; i < len(key); i++ {
		dst = append(dst, key[i])
		if key[i] == keyEscape {
			dst = append(dst, keyZero)
		}
	}
	return append(dst, keyEscape, keyEnd)
}

func appendTime(dst []byte, t envelope.EventTime) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(t)^signBit)
}

// appendRowKey appends the key of the row of one window.
func appendRowKey(dst []byte, key string, w revision.Window) []byte {
	return appendTime(appendTime(appendKey(dst, key), w.Start), w.End)
}

// splitRowKey answers the part that names the business key (with its terminator) and the
// window's start.
func splitRowKey(rowKey []byte) (keyPart []byte, start envelope.EventTime) {
	at := len(rowKey) - 2*boundBytes
	return rowKey[:at], envelope.EventTime(binary.BigEndian.Uint64(rowKey[at:]) ^ signBit)
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

package aggregate

import (
	"encoding/binary"
	"errors"
	"math"
)

var errState = errors.New("aggregate state is damaged; discard the checkpoint")

func decodeUvarint(data []byte) (uint64, []byte, error) {
	n, size := binary.Uvarint(data)
	if size <= 0 {
		return 0, nil, errState
	}
	return n, data[size:], nil
}

func appendCount(dst []byte, n int64) []byte { return binary.AppendUvarint(dst, uint64(n)) }

func decodeCount(data []byte) (int64, []byte, error) {
	n, rest, err := decodeUvarint(data)
	if err != nil || n > math.MaxInt64 {
		return 0, nil, errState
	}
	return int64(n), rest, nil
}

// grow answers the event count after one more, or an overflow.
func grow(n int64) (int64, error) {
	if n == math.MaxInt64 {
		return 0, ErrOverflow
	}
	return n + 1, nil
}

package aggregate

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// Multiset holds the values of a window with their counts, in order, so that any of them
// can be withdrawn. Numbers and text are kept apart; a function uses one of the two.
type Multiset struct {
	numbers counted[int64]
	texts   counted[string]
}

// entry is one value and how many events have it.
type entry[K cmp.Ordered] struct {
	key K
	n   int64
}

// chunkSize bounds a chunk: inserting moves at most so many entries, however many
// distinct values a window has.
const chunkSize = 512

// counted is a sorted multiset in chunks. Chunks are never empty.
type counted[K cmp.Ordered] struct{ chunks [][]entry[K] }

// find answers the chunk and the index at which key stands or would be inserted.
func (s *counted[K]) find(key K) (chunk, index int, found bool) {
	chunk, exact := slices.BinarySearchFunc(s.chunks, key, func(c []entry[K], key K) int {
		return cmp.Compare(c[0].key, key)
	})
	if exact {
		return chunk, 0, true
	}
	if chunk > 0 {
		chunk--
	}
	if len(s.chunks) == 0 {
		return 0, 0, false
	}
	index, found = slices.BinarySearchFunc(s.chunks[chunk], key, func(e entry[K], key K) int {
		return cmp.Compare(e.key, key)
	})
	return chunk, index, found
}

// add counts key once more. own makes a copy of a key that is kept.
func (s *counted[K]) add(key K, own func(K) K) error {
	chunk, index, found := s.find(key)
	if found {
		e := &s.chunks[chunk][index]
		n, err := grow(e.n)
		if err != nil {
			return err
		}
		e.n = n
		return nil
	}
	if len(s.chunks) == 0 {
		s.chunks = append(s.chunks, nil)
	}
	grown := slices.Insert(s.chunks[chunk], index, entry[K]{own(key), 1})
	s.chunks[chunk] = grown
	if len(grown) > chunkSize {
		half := len(grown) / 2
		s.chunks = slices.Insert(s.chunks, chunk+1, slices.Clone(grown[half:]))
		clear(grown[half:])
		s.chunks[chunk] = grown[:half]
	}
	return nil
}

// remove counts key once less; false when it is not there.
func (s *counted[K]) remove(key K) bool {
	chunk, index, found := s.find(key)
	if !found {
		return false
	}
	if e := &s.chunks[chunk][index]; e.n > 1 {
		e.n--
		return true
	}
	s.chunks[chunk] = slices.Delete(s.chunks[chunk], index, index+1)
	if len(s.chunks[chunk]) == 0 {
		s.chunks = slices.Delete(s.chunks, chunk, chunk+1)
	}
	return true
}

// least and greatest answer the ends of a multiset that is not empty.
func (s *counted[K]) least() K { return s.chunks[0][0].key }

func (s *counted[K]) greatest() K {
	last := s.chunks[len(s.chunks)-1]
	return last[len(last)-1].key
}

// appendState writes the number of distinct values and then, in order, each with its
// count; where chunks end leaves no trace.
func (s *counted[K]) appendState(dst []byte, key func([]byte, K) []byte) []byte {
	distinct := 0
	for _, chunk := range s.chunks {
		distinct += len(chunk)
	}
	dst = appendCount(dst, int64(distinct))
	for _, chunk := range s.chunks {
		for _, e := range chunk {
			dst = appendCount(key(dst, e.key), e.n)
		}
	}
	return dst
}

func (s *counted[K]) decodeState(data []byte, key func([]byte) (K, []byte, error)) (rest []byte, events int64, err error) {
	distinct, data, err := decodeCount(data)
	if err != nil || distinct > int64(len(data)) {
		return nil, 0, errState
	}
	s.chunks = nil
	var chunk []entry[K]
	for i := range distinct {
		var e entry[K]
		if e.key, data, err = key(data); err != nil {
			return nil, 0, err
		}
		if e.n, data, err = decodeCount(data); err != nil {
			return nil, 0, err
		}
		if e.n < 1 || e.n > math.MaxInt64-events || i > 0 && e.key <= s.greatest() {
			return nil, 0, errState
		}
		events += e.n
		if len(chunk) == chunkSize || chunk == nil {
			chunk = make([]entry[K], 0, min(distinct-i, chunkSize))
			s.chunks = append(s.chunks, nil)
		}
		chunk = append(chunk, e)
		s.chunks[len(s.chunks)-1] = chunk
	}
	return data, events, nil
}

func ownNumber(n int64) int64 { return n }

func appendNumberKey(dst []byte, n int64) []byte { return binary.AppendVarint(dst, n) }

func decodeNumberKey(data []byte) (int64, []byte, error) {
	n, size := binary.Varint(data)
	if size <= 0 {
		return 0, nil, errState
	}
	return n, data[size:], nil
}

func appendTextKey(dst []byte, s string) []byte {
	return append(appendCount(dst, int64(len(s))), s...)
}

func decodeTextKey(data []byte) (string, []byte, error) {
	size, data, err := decodeCount(data)
	if err != nil || size > int64(len(data)) {
		return "", nil, errState
	}
	return string(data[:size]), data[size:], nil
}

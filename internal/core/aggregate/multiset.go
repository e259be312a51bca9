package aggregate

import (
	"math"
	"slices"
)

// Multiset holds what a function keeps of the events of a window, with counts and in
// order, so that any of them can be withdrawn. A function uses one of its parts.
type Multiset struct {
	numbers counted[number]
	texts   counted[text]
	moments counted[moment]
}

// key is what a multiset can hold.
type key[K any] interface {
	compare(other K) int
	own() K // a copy that points into no frame
	appendState(dst []byte) []byte
	decodeState(data []byte) (key K, rest []byte, err error) // the receiver does not matter
}

// entry is one key and how many events have it.
type entry[K key[K]] struct {
	key K
	n   int64
}

// chunkSize bounds a chunk: inserting moves at most so many entries, however many
// distinct values a window has.
const chunkSize = 512

// counted is a sorted multiset in chunks. Chunks are never empty.
type counted[K key[K]] struct {
	chunks [][]entry[K]
	size   int // distinct keys
}

// find answers the chunk and the index at which key stands or would be inserted.
func (s *counted[K]) find(key K) (chunk, index int, found bool) {
	chunk, exact := slices.BinarySearchFunc(s.chunks, key, func(c []entry[K], key K) int {
		return c[0].key.compare(key)
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
		return e.key.compare(key)
	})
	return chunk, index, found
}

// has tells whether key is there.
func (s *counted[K]) has(key K) bool {
	_, _, found := s.find(key)
	return found
}

// add counts key once more.
func (s *counted[K]) add(key K) error {
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
	s.size++
	grown := slices.Insert(s.chunks[chunk], index, entry[K]{key.own(), 1})
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
	s.size--
	s.chunks[chunk] = slices.Delete(s.chunks[chunk], index, index+1)
	if len(s.chunks[chunk]) == 0 {
		s.chunks = slices.Delete(s.chunks, chunk, chunk+1)
	}
	return true
}

// only makes key the only one.
func (s *counted[K]) only(key K) {
	if len(s.chunks) != 1 || len(s.chunks[0]) != 1 {
		s.chunks = [][]entry[K]{make([]entry[K], 1)}
	}
	s.chunks[0][0], s.size = entry[K]{key.own(), 1}, 1
}

// least and greatest answer the ends of a multiset that is not empty.
func (s *counted[K]) least() K { return s.chunks[0][0].key }

func (s *counted[K]) greatest() K {
	last := s.chunks[len(s.chunks)-1]
	return last[len(last)-1].key
}

// appendState writes the number of distinct keys and then, in order, each with its
// count; where chunks end leaves no trace.
func (s *counted[K]) appendState(dst []byte) []byte {
	dst = appendCount(dst, int64(s.size))
	for _, chunk := range s.chunks {
		for _, e := range chunk {
			dst = appendCount(e.key.appendState(dst), e.n)
		}
	}
	return dst
}

func (s *counted[K]) decodeState(data []byte) (rest []byte, events int64, err error) {
	distinct, data, err := decodeCount(data)
	if err != nil || distinct > int64(len(data)) {
		return nil, 0, errState
	}
	s.chunks, s.size = nil, int(distinct)
	var chunk []entry[K]
	for i := range distinct {
		var e entry[K]
		if e.key, data, err = e.key.decodeState(data); err != nil {
			return nil, 0, err
		}
		if e.n, data, err = decodeCount(data); err != nil {
			return nil, 0, err
		}
		if e.n < 1 || e.n > math.MaxInt64-events || i > 0 && e.key.compare(s.greatest()) <= 0 {
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

// decodeExt reads a count of events and then keys into held, a part of ext. keepAll tells
// that there is a key for every event; otherwise there is one for them all.
func decodeExt[K key[K]](data []byte, c *Cell, ext *Multiset, held *counted[K], keepAll bool) (rest []byte, err error) {
	*c = Cell{}
	n, data, err := decodeCount(data)
	if err != nil {
		return nil, err
	}
	rest, events, err := held.decodeState(data)
	if err != nil {
		return nil, err
	}
	if keepAll && events != n || !keepAll && events > 1 || (events == 0) != (n == 0) {
		return nil, errState
	}
	if c.N = n; n > 0 {
		c.Ext = ext
	}
	return rest, nil
}

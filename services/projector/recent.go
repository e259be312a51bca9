package projector

import (
	"slices"
	"sort"
)

// recent holds rows that do not stand in the file yet: looked up by key, and walked in
// the order of their keys. Queries walk it while it grows, so it is kept in order.
type recent struct {
	rows  map[string][]byte
	parts [][]string // sorted keys, in sorted pieces; none is empty
	bytes int        // of keys and values put, repetitions included
}

// partKeys is how many keys one piece holds at most: what an insertion has to move.
const partKeys = 512

func newRecent(room int) *recent { return &recent{rows: make(map[string][]byte, room)} }

// put sets the value of a key.
func (r *recent) put(key string, value []byte) {
	if _, had := r.rows[key]; !had {
		r.insert(key)
	}
	r.rows[key] = value
	r.bytes += len(key) + len(value)
}

func (r *recent) insert(key string) {
	at := r.part(key)
	switch last := len(r.parts) - 1; {
	case last < 0, at == last && len(r.parts[last]) >= partKeys && key > r.parts[last][partKeys-1]:
		r.parts = append(r.parts, append(make([]string, 0, partKeys), key)) // keys that come in order
		return
	case len(r.parts[at]) >= partKeys:
		half := r.parts[at][partKeys/2:]
		r.parts = slices.Insert(r.parts, at+1, append(make([]string, 0, partKeys), half...))
		clear(half)
		r.parts[at] = r.parts[at][:partKeys/2]
		if key > r.parts[at+1][0] {
			at++
		}
	}
	place, _ := slices.BinarySearch(r.parts[at], key)
	r.parts[at] = slices.Insert(r.parts[at], place, key)
}

// part answers the last piece that begins at or before key, the first if none does.
func (r *recent) part(key string) int {
	return max(0, sort.Search(len(r.parts), func(i int) bool { return r.parts[i][0] > key })-1)
}

// walk is a place among the keys of a recent. The zero value is at the end.
type walk struct {
	keys  []string   // what is left of the piece at hand
	parts [][]string // the pieces behind it
}

// from answers the place of the first key >= key. A nil recent has none.
func (r *recent) from(key string) walk {
	if r == nil || len(r.parts) == 0 {
		return walk{}
	}
	at := r.part(key)
	place, _ := slices.BinarySearch(r.parts[at], key)
	w := walk{keys: r.parts[at][place:], parts: r.parts[at+1:]}
	w.settle()
	return w
}

// settle moves to the next piece when the one at hand is walked through.
func (w *walk) settle() {
	if len(w.keys) == 0 && len(w.parts) > 0 {
		w.keys, w.parts = w.parts[0], w.parts[1:]
	}
}

// head answers the key at hand, false at the end.
func (w *walk) head() (string, bool) {
	if len(w.keys) == 0 {
		return "", false
	}
	return w.keys[0], true
}

func (w *walk) next() {
	w.keys = w.keys[1:]
	w.settle()
}

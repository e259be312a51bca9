package window

import (
	"fmt"
	"slices"
	"strings"
)

// keyTable gives every key of the state a small number, and takes it back when neither
// a window nor an id refers to the key any more.
type keyTable struct {
	numbers map[string]uint32
	entries []keyEntry
	free    []uint32
	changed []uint32 // numbers given or taken back since the last Delta
}

type keyEntry struct {
	name    string
	refs    uint32 // windows and ids that refer to the key; 0 = the number is free
	changed bool   // stands in keyTable.changed
	stored  bool   // a Delta wrote it
}

func newKeyTable() keyTable { return keyTable{numbers: make(map[string]uint32)} }

func (k *keyTable) find(name string) (uint32, bool) {
	n, ok := k.numbers[name]
	return n, ok
}

// intern answers the number of name, which may be a part of a frame. The caller takes a
// reference at once: a number without references is not kept.
func (k *keyTable) intern(name string) uint32 {
	if n, ok := k.numbers[name]; ok {
		return n
	}
	name = strings.Clone(name)
	var n uint32
	if last := len(k.free) - 1; last >= 0 {
		n = k.free[last]
		k.free = k.free[:last]
	} else {
		n = uint32(len(k.entries))
		k.entries = append(k.entries, keyEntry{})
	}
	k.entries[n].name = name
	k.numbers[name] = n
	k.touch(n)
	return n
}

func (k *keyTable) name(n uint32) string { return k.entries[n].name }

func (k *keyTable) retain(n uint32) { k.entries[n].refs++ }

func (k *keyTable) release(n uint32) {
	e := &k.entries[n]
	e.refs--
	if e.refs > 0 {
		return
	}
	delete(k.numbers, e.name)
	e.name = ""
	k.free = append(k.free, n)
	k.touch(n)
}

func (k *keyTable) touch(n uint32) {
	if e := &k.entries[n]; !e.changed {
		e.changed = true
		k.changed = append(k.changed, n)
	}
}

// maxKeys is far above the keys that one partition can be given; a higher number comes
// from damage, and must not take the memory of a table that long.
const maxKeys = 1 << 24

// place puts a restored key back at its number; references follow from windows and ids.
func (k *keyTable) place(n uint32, name string) error {
	if n >= maxKeys {
		return fmt.Errorf("key number %d is out of range", n)
	}
	if grow := int(n) + 1 - len(k.entries); grow > 0 {
		k.entries = append(k.entries, make([]keyEntry, grow)...)
	}
	k.entries[n] = keyEntry{name: name, stored: true}
	k.numbers[name] = n
	return nil
}

// settle is called when all references are back. Numbers that nothing refers to are
// free; the highest is given out last, so that the table can stay short.
func (k *keyTable) settle() error {
	k.free = k.free[:0]
	for n := len(k.entries) - 1; n >= 0; n-- {
		e := &k.entries[n]
		switch {
		case e.refs == 0 && e.name != "":
			return fmt.Errorf("key %q is stored, but no window or id refers to it", e.name)
		case e.refs > 0 && e.name == "":
			return fmt.Errorf("key number %d is referred to, but not stored", n)
		case e.refs == 0:
			k.free = append(k.free, uint32(n))
		}
	}
	return nil
}

// sortedChanged answers the numbers to be written by a Delta, in order.
func (k *keyTable) sortedChanged() []uint32 {
	slices.Sort(k.changed)
	return k.changed
}

func (k *keyTable) count() int { return len(k.numbers) }

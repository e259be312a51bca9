package window

import (
	"encoding/binary"
	"testing"
)

// pairs reads key and value pairs, each behind its length.
func pairs(data []byte, yield func(key, value []byte) error) error {
	next := func() (text []byte, ok bool) {
		if len(data) < 2 {
			return nil, false
		}
		n := int(binary.BigEndian.Uint16(data))
		if data = data[2:]; n > len(data) {
			return nil, false
		}
		text, data = data[:n], data[n:]
		return text, true
	}
	for {
		key, ok := next()
		if !ok {
			return nil
		}
		value, ok := next()
		if !ok {
			return nil
		}
		if err := yield(key, value); err != nil {
			return err
		}
	}
}

// FuzzRestore reads checkpoints: damage is an error, and what is taken is whole enough to
// be written again and to go on.
func FuzzRestore(f *testing.F) {
	o, err := New(benchConfig())
	if err != nil {
		f.Fatal(err)
	}
	feed(f, o, newLoad(10, 400), 64*256+100)
	var seed []byte
	if err := o.Delta(func(key, value []byte) error {
		if len(value) > 1<<16-1 {
			value = value[:1<<16-1]
		}
		for _, text := range [][]byte{key, value} {
			seed = append(binary.BigEndian.AppendUint16(seed, uint16(len(text))), text...)
		}
		return nil
	}); err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(seed[:len(seed)/2])
	f.Add([]byte{})
	empty, err := New(benchConfig())
	if err != nil {
		f.Fatal(err)
	}
	var small []byte
	if err := empty.Delta(func(key, value []byte) error {
		for _, text := range [][]byte{key, value} {
			small = append(binary.BigEndian.AppendUint16(small, uint16(len(text))), text...)
		}
		return nil
	}); err != nil {
		f.Fatal(err)
	}
	f.Add(small)
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := Restore(benchConfig(), func(yield func(key, value []byte) error) error { return pairs(data, yield) })
		if err != nil {
			return
		}
		if err := o.Delta(func(_, _ []byte) error { return nil }); err != nil {
			t.Fatalf("what was restored cannot be stored: %v", err)
		}
		o.Totals()
		o.Status()
	})
}

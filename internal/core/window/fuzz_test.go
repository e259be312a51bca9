package window

import (
	"encoding/binary"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
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

// checkpoint answers what the first Delta of an operator holds, as pairs reads it.
func checkpoint(t testing.TB, o *Operator) (out []byte) {
	t.Helper()
	if err := o.Delta(func(key, value []byte) error {
		if len(value) > 1<<16-1 {
			value = value[:1<<16-1]
		}
		for _, text := range [][]byte{key, value} {
			out = append(binary.BigEndian.AppendUint16(out, uint16(len(text))), text...)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// FuzzRestore reads checkpoints: damage is an error, and what is taken is whole enough to
// be written again and to go on.
func FuzzRestore(f *testing.F) {
	configs := []Config{benchConfig(), sessionBench()}
	for i, cfg := range configs {
		empty, err := New(cfg)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(checkpoint(f, empty))
		o, err := New(cfg)
		if err != nil {
			f.Fatal(err)
		}
		if i == 0 {
			feed(f, o, newLoad(10, 400), 64*256+100)
		} else {
			feedSessions(f, o, &bridges{load: newLoad(10, 400), every: 5}, 64*256+100)
		}
		seed := checkpoint(f, o)
		f.Add(seed)
		f.Add(seed[:len(seed)/2])
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		err := pairs(data, func(key, _ []byte) error {
			// A lawful key number makes a table of that length; long ones only take time here.
			if len(key) == 5 && key[0] == pairKey && binary.BigEndian.Uint32(key[1:]) >= 1<<16 {
				return errShape
			}
			return nil
		})
		if err != nil {
			return
		}
		for _, cfg := range configs {
			o, err := Restore(cfg, func(yield func(key, value []byte) error) error { return pairs(data, yield) })
			if err != nil {
				continue
			}
			if err := o.Delta(func(_, _ []byte) error { return nil }); err != nil {
				t.Fatalf("what was restored cannot be stored: %v", err)
			}
			o.Totals()
			o.Status()
			o.OpenFrom()
			o.BeginFrame(o.Position().Seq, &envelope.Frame{Extractors: []string{"at@1"}, Values: []string{"amount"}})
			m := &envelope.Mark{Source: "shop", Finished: true, Epoch: 1 << 60, IngestNow: 1 << 60}
			if err := o.Apply(int(o.Position().Index), &envelope.Record{Mark: m}); err != nil {
				continue
			}
			for more := true; more; {
				_, more = o.Next(nil)
			}
		}
	})
}

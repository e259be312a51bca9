package window

import (
	"encoding/binary"
	"fmt"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// readFinals notes which panes are final: the first ones, or the meta pair is damaged.
func (r *restorer) readFinals() error {
	d := decoder{rest: r.finals}
	for len(d.rest) > 0 && d.err == nil {
		start, now := d.varint(), d.varint()
		p := r.o.panes[start]
		if p == nil {
			return fmt.Errorf("the windows that start at %s are missing: %w", envelope.EventTime(start), errShape)
		}
		p.final, p.finalNow = true, envelope.IngestTime(now)
	}
	return d.err
}

// readMembers puts back what REOPENs said of members.
func (r *restorer) readMembers() error {
	for _, m := range r.members {
		p := r.o.panes[m.start]
		if p == nil {
			return fmt.Errorf("the windows that start at %s are missing: %w", envelope.EventTime(m.start), errShape)
		}
		d := decoder{rest: m.value}
		for len(d.rest) > 0 && d.err == nil {
			place, there := d.uint32(), d.byte()
			var hash [16]byte
			d.fill(hash[:])
			if int(place) >= len(p.wins) || there > 1 {
				d.fail()
			}
			p.know(int(place), hash, there == 1)
		}
		if d.err != nil {
			return d.err
		}
		p.reopenedChanged, p.reopenedStored = false, true
	}
	return nil
}

// keyFor answers what is remembered of the REOPENs of a key, which is made if there is nothing.
func (r *restorer) keyFor(key string) *keyReopens {
	k := r.o.reopens[key]
	if k == nil {
		k = &keyReopens{}
		r.o.reopens[key] = k
	}
	return k
}

func (r *restorer) reopens(key string, value []byte) error {
	k, d := r.keyFor(key), decoder{rest: value}
	k.acted = d.byte() != 0
	k.place.Seq, k.place.Index, k.now = d.uvarint(), d.uint32(), envelope.IngestTime(d.varint())
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		k.values = append(k.values, d.text())
	}
	k.stored = 1
	return d.end()
}

// part keeps a part of a REOPEN; pairs come in any order.
func (r *restorer) part(rest, body []byte) error {
	if len(rest) < 4 {
		return errShape
	}
	place, k := int(binary.BigEndian.Uint32(rest)), r.keyFor(string(rest[4:]))
	if place >= envelope.MaxReopenParts {
		return errShape
	}
	for len(k.bodies) <= place {
		k.bodies, k.parts = append(k.bodies, nil), append(k.parts, nil)
	}
	parsed, err := envelope.ParseReopen(body)
	if err != nil {
		return err
	}
	k.bodies[place], k.parts[place] = append([]byte(nil), body...), parsed
	return nil
}

// readParts checks that no part is missing and that each has a head.
func (r *restorer) readParts() error {
	for key, k := range r.o.reopens {
		if k.stored == 0 {
			return fmt.Errorf("the REOPEN of key %q has no head: %w", key, errShape)
		}
		for _, part := range k.parts {
			if part == nil || !envelope.SameReopen(k.parts[0], part) {
				return fmt.Errorf("a part of the REOPEN of key %q is missing: %w", key, errShape)
			}
		}
		k.stored = 1 + len(k.bodies)
	}
	return nil
}

package aggregate

import (
	"cmp"
	"encoding/binary"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// number is a value that is a number, at its declared scale.
type number int64

func (n number) compare(other number) int { return cmp.Compare(n, other) }

func (n number) own() number { return n }

func (n number) appendState(dst []byte) []byte { return binary.AppendVarint(dst, int64(n)) }

func (number) decodeState(data []byte) (number, []byte, error) {
	n, size := binary.Varint(data)
	if size <= 0 {
		return 0, nil, errState
	}
	return number(n), data[size:], nil
}

// text is a value that is text, compared bytewise.
type text string

func (t text) compare(other text) int { return cmp.Compare(t, other) }

func (t text) own() text { return text(strings.Clone(string(t))) }

func (t text) appendState(dst []byte) []byte {
	return append(appendCount(dst, int64(len(t))), t...)
}

func (text) decodeState(data []byte) (text, []byte, error) {
	size, data, err := decodeCount(data)
	if err != nil || size > int64(len(data)) {
		return "", nil, errState
	}
	return text(data[:size]), data[size:], nil
}

// moment is an event with its value, in the order of event time, source and id. No two
// events of a window share all three; if two did, their values would decide, so that
// the order of arrival never does.
type moment struct {
	time   envelope.EventTime
	source text
	id     text
	number number // the value, if it is a number
	text   text   // the value, if it is text
}

func (m moment) compare(other moment) int {
	if c := cmp.Compare(m.time, other.time); c != 0 {
		return c
	}
	return cmp.Or(m.source.compare(other.source), m.id.compare(other.id),
		m.number.compare(other.number), m.text.compare(other.text))
}

// own copies the texts into one piece of memory.
func (m moment) own() moment {
	var b strings.Builder
	b.Grow(len(m.source) + len(m.id) + len(m.text))
	for _, part := range []text{m.source, m.id, m.text} {
		b.WriteString(string(part))
	}
	all := text(b.String())
	m.source, all = all[:len(m.source)], all[len(m.source):]
	m.id, m.text = all[:len(m.id)], all[len(m.id):]
	return m
}

func (m moment) appendState(dst []byte) []byte {
	dst = number(m.time).appendState(dst)
	dst = m.id.appendState(m.source.appendState(dst))
	return m.text.appendState(m.number.appendState(dst))
}

func (moment) decodeState(data []byte) (m moment, rest []byte, err error) {
	at, data, err := number(0).decodeState(data)
	if err != nil {
		return m, nil, err
	}
	m.time = envelope.EventTime(at)
	for _, part := range []*text{&m.source, &m.id} {
		if *part, data, err = part.decodeState(data); err != nil {
			return m, nil, err
		}
	}
	if m.number, data, err = m.number.decodeState(data); err != nil {
		return m, nil, err
	}
	m.text, data, err = m.text.decodeState(data)
	return m, data, err
}

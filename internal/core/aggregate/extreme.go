package aggregate

import (
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// newMin and newMax answer the least and the greatest value; text is compared bytewise.
func newMin(d declaration) (Func, error) { return newExtreme(d, "min", false) }

func newMax(d declaration) (Func, error) { return newExtreme(d, "max", true) }

// newExtreme answers min or max. On a stream with retractions all values are kept, since
// the extreme one may be withdrawn; otherwise one value is enough.
func newExtreme(d declaration, name string, greatest bool) (Func, error) {
	if d.value == nil {
		return nil, errNoValue
	}
	e := extreme{name: name, greatest: greatest, keepAll: d.retractions}
	if d.value.Type == policy.String {
		return textExtreme{e}, nil
	}
	scale, err := numberOf(d.value)
	return numberExtreme{extreme: e, scale: scale, quoted: d.value.Type == policy.Decimal}, err
}

// extreme is what min and max over numbers and over text have in common.
type extreme struct {
	name     string
	greatest bool
	keepAll  bool
}

func (e extreme) Name() string { return e.name }

// numberExtreme keeps the one value in Cell.Lo, or all of them in Cell.Ext.
type numberExtreme struct {
	extreme
	scale  int
	quoted bool
}

func (e numberExtreme) Add(c *Cell, in *Input) error {
	n, err := grow(c.N)
	if err != nil {
		return err
	}
	if e.keepAll {
		if c.Ext == nil {
			c.Ext = new(Multiset)
		}
		if err := c.Ext.numbers.add(number(in.Value.Int)); err != nil {
			return err
		}
	} else if held := int64(c.Lo); c.N == 0 || e.greatest && in.Value.Int > held || !e.greatest && in.Value.Int < held {
		c.setNumber(fromInt64(in.Value.Int))
	}
	c.N = n
	return nil
}

func (e numberExtreme) Remove(c *Cell, in *Input) error {
	if !e.keepAll {
		return ErrNotRetractable
	}
	if c.Ext == nil || !c.Ext.numbers.remove(number(in.Value.Int)) {
		return ErrNotHeld
	}
	c.shrink()
	return nil
}

// shrink counts one event less; the multiset of none is dropped, so that a Cell emptied
// is the zero Cell again.
func (c *Cell) shrink() {
	if c.N--; c.N == 0 {
		c.Ext = nil
	}
}

func (e numberExtreme) AppendResult(dst []byte, c *Cell) ([]byte, bool) {
	held := c.number()
	switch {
	case c.Ext == nil:
	case e.greatest:
		held = fromInt64(int64(c.Ext.numbers.greatest()))
	default:
		held = fromInt64(int64(c.Ext.numbers.least()))
	}
	return held.appendDecimal(dst, e.scale), e.quoted
}

func (e numberExtreme) Decimals() (int, bool) { return e.scale, true }

func (e numberExtreme) AppendState(dst []byte, c *Cell) []byte {
	if !e.keepAll {
		return appendNumber(dst, c)
	}
	if c.Ext == nil {
		return appendCount(dst, 0)
	}
	return c.Ext.numbers.appendState(dst)
}

func (e numberExtreme) DecodeState(data []byte, c *Cell) (rest []byte, err error) {
	if !e.keepAll {
		return decodeNumber(data, c)
	}
	*c = Cell{}
	ext := new(Multiset)
	rest, c.N, err = ext.numbers.decodeState(data)
	if c.N > 0 {
		c.Ext = ext
	}
	return rest, err
}

// textExtreme always uses Cell.Ext, without retractions for the one value held.
type textExtreme struct{ extreme }

func (e textExtreme) Add(c *Cell, in *Input) error {
	n, err := grow(c.N)
	if err != nil {
		return err
	}
	if c.Ext == nil {
		c.Ext = new(Multiset)
	}
	texts, t := &c.Ext.texts, text(in.Value.Text)
	switch {
	case e.keepAll:
		err = texts.add(t)
	case c.N == 0 || e.greatest && t > texts.greatest() || !e.greatest && t < texts.least():
		texts.only(t)
	}
	if err != nil {
		return err
	}
	c.N = n
	return nil
}

func (e textExtreme) Remove(c *Cell, in *Input) error {
	if !e.keepAll {
		return ErrNotRetractable
	}
	if c.Ext == nil || !c.Ext.texts.remove(text(in.Value.Text)) {
		return ErrNotHeld
	}
	c.shrink()
	return nil
}

func (e textExtreme) AppendResult(dst []byte, c *Cell) ([]byte, bool) {
	if e.greatest {
		return append(dst, c.Ext.texts.greatest()...), true
	}
	return append(dst, c.Ext.texts.least()...), true
}

func (e textExtreme) Decimals() (int, bool) { return 0, false }

// AppendState writes the count of events beside the texts: without retractions the one
// text held does not tell it.
func (e textExtreme) AppendState(dst []byte, c *Cell) []byte {
	dst = appendCount(dst, c.N)
	if c.Ext == nil {
		return appendCount(dst, 0)
	}
	return c.Ext.texts.appendState(dst)
}

func (e textExtreme) DecodeState(data []byte, c *Cell) (rest []byte, err error) {
	ext := new(Multiset)
	return decodeExt(data, c, ext, &ext.texts, e.keepAll)
}

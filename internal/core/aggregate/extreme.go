package aggregate

import (
	"errors"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// newExtreme answers min or max. On a stream with retractions all values are kept, since
// the extreme one may be withdrawn; otherwise one value is enough. Text is compared
// bytewise.
func newExtreme(name string, value *policy.ValueSpec, retractions bool) (Func, error) {
	if value == nil {
		return nil, errors.New("the function needs the name of a declared value")
	}
	e := extreme{name: name, greatest: name == "max", keepAll: retractions}
	if value.Type == policy.String {
		return textExtreme{e}, nil
	}
	scale, err := numberOf(value)
	if err != nil {
		return nil, err
	}
	return numberExtreme{extreme: e, scale: scale, quoted: value.Type == policy.Decimal}, nil
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
		if err := c.Ext.numbers.add(in.Value.Int, ownNumber); err != nil {
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
	if c.Ext == nil || !c.Ext.numbers.remove(in.Value.Int) {
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
		held = fromInt64(c.Ext.numbers.greatest())
	default:
		held = fromInt64(c.Ext.numbers.least())
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
	return c.Ext.numbers.appendState(dst, appendNumberKey)
}

func (e numberExtreme) DecodeState(data []byte, c *Cell) (rest []byte, err error) {
	if !e.keepAll {
		return decodeNumber(data, c)
	}
	*c = Cell{}
	ext := new(Multiset)
	rest, c.N, err = ext.numbers.decodeState(data, decodeNumberKey)
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
	texts := &c.Ext.texts
	if !e.keepAll && c.N > 0 {
		held := texts.least()
		if e.greatest && in.Value.Text <= held || !e.greatest && in.Value.Text >= held {
			c.N = n
			return nil
		}
		texts.remove(held)
	}
	if err := texts.add(in.Value.Text, strings.Clone); err != nil {
		return err
	}
	c.N = n
	return nil
}

func (e textExtreme) Remove(c *Cell, in *Input) error {
	if !e.keepAll {
		return ErrNotRetractable
	}
	if c.Ext == nil || !c.Ext.texts.remove(in.Value.Text) {
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
	return c.Ext.texts.appendState(dst, appendTextKey)
}

func (e textExtreme) DecodeState(data []byte, c *Cell) (rest []byte, err error) {
	*c = Cell{}
	n, data, err := decodeCount(data)
	if err != nil {
		return nil, err
	}
	ext := new(Multiset)
	rest, held, err := ext.texts.decodeState(data, decodeTextKey)
	if err != nil {
		return nil, err
	}
	if e.keepAll && held != n || !e.keepAll && held > 1 || (held == 0) != (n == 0) {
		return nil, errState
	}
	if c.N = n; n > 0 {
		c.Ext = ext
	}
	return rest, nil
}

package aggregate

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// ErrLimit is answered by Add of one distinct value more than the policy declares. The
// partition halts: a count that left values out would be no count.
var ErrLimit = errors.New("too many distinct values")

// newDistinct answers distinct: how many different values the events have, exactly, up
// to a declared limit. Every value is kept with its count, so that any event can be
// withdrawn.
func newDistinct(d declaration) (Func, error) {
	switch {
	case d.value == nil:
		return nil, errNoValue
	case d.spec.Limit < 1 || d.spec.Limit > policy.MaxDistinct:
		return nil, fmt.Errorf("the limit is %d; it must be from 1 to %d", d.spec.Limit, policy.MaxDistinct)
	case d.value.Type == policy.String:
		return distinct[text]{call: d.spec, pick: pickText, held: heldTexts}, nil
	}
	_, err := numberOf(d.value)
	return distinct[number]{call: d.spec, pick: pickNumber, held: heldNumbers}, err
}

type distinct[K key[K]] struct {
	call policy.AggregateSpec
	pick func(in *Input) K
	held func(m *Multiset) *counted[K]
}

func pickNumber(in *Input) number { return number(in.Value.Int) }

func pickText(in *Input) text { return text(in.Value.Text) }

func heldNumbers(m *Multiset) *counted[number] { return &m.numbers }

func heldTexts(m *Multiset) *counted[text] { return &m.texts }

func (distinct[K]) Name() string { return "distinct" }

func (d distinct[K]) Add(c *Cell, in *Input) error {
	n, err := grow(c.N)
	if err != nil {
		return err
	}
	if c.Ext == nil {
		c.Ext = new(Multiset)
	}
	held, v := d.held(c.Ext), d.pick(in)
	if int64(held.size) >= d.call.Limit && !held.has(v) {
		return fmt.Errorf("%w: the window holds %d already, the limit that %s declares; start a new generation with a higher limit (at most %d), or count something coarser",
			ErrLimit, d.call.Limit, d.call, policy.MaxDistinct)
	}
	if err := held.add(v); err != nil {
		return err
	}
	c.N = n
	return nil
}

func (d distinct[K]) Remove(c *Cell, in *Input) error {
	if c.Ext == nil || !d.held(c.Ext).remove(d.pick(in)) {
		return ErrNotHeld
	}
	c.shrink()
	return nil
}

func (d distinct[K]) AppendResult(dst []byte, c *Cell) ([]byte, bool) {
	return strconv.AppendInt(dst, int64(d.held(c.Ext).size), 10), false
}

func (distinct[K]) Decimals() (int, bool) { return 0, true }

func (d distinct[K]) AppendState(dst []byte, c *Cell) []byte {
	if c.Ext == nil {
		return appendCount(dst, 0)
	}
	return d.held(c.Ext).appendState(dst)
}

func (d distinct[K]) DecodeState(data []byte, c *Cell) (rest []byte, err error) {
	*c = Cell{}
	ext := new(Multiset)
	held := d.held(ext)
	rest, events, err := held.decodeState(data)
	if err != nil || int64(held.size) > d.call.Limit {
		return nil, errState
	}
	if c.N = events; events > 0 {
		c.Ext = ext
	}
	return rest, nil
}

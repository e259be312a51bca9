package aggregate

import (
	"errors"
	"strconv"
)

// count is the number of events, a bare integer.
type count struct{}

func newCount(d declaration) (Func, error) {
	if d.value != nil {
		return nil, errors.New("count takes no value: every accepted event has all declared values; write count()")
	}
	return count{}, nil
}

func (count) Name() string { return "count" }

func (count) Add(c *Cell, _ *Input) (err error) {
	n, err := grow(c.N)
	if err != nil {
		return err
	}
	c.N = n
	return nil
}

func (count) Remove(c *Cell, _ *Input) error {
	if c.N == 0 {
		return ErrNotHeld
	}
	c.N--
	return nil
}

func (count) AppendResult(dst []byte, c *Cell) ([]byte, bool) {
	return strconv.AppendInt(dst, c.N, 10), false
}

func (count) Decimals() (int, bool) { return 0, true }

func (count) AppendState(dst []byte, c *Cell) []byte { return appendCount(dst, c.N) }

func (count) DecodeState(data []byte, c *Cell) (rest []byte, err error) {
	*c = Cell{}
	c.N, rest, err = decodeCount(data)
	return rest, err
}

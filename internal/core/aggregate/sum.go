package aggregate

import (
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// sum adds values up in 128 bits. Sums of decimals are quoted and have exactly the
// declared scale; sums of ints are bare integers.
type sum struct {
	scale  int
	quoted bool
}

func newSum(d declaration) (Func, error) {
	scale, err := numberOf(d.value)
	if err != nil {
		return nil, err
	}
	return sum{scale: scale, quoted: d.value.Type == policy.Decimal}, nil
}

func (sum) Name() string { return "sum" }

func (sum) Add(c *Cell, in *Input) error { return addNumber(c, in.Value.Int) }

func (sum) Remove(c *Cell, in *Input) error { return removeNumber(c, in.Value.Int) }

func (s sum) AppendResult(dst []byte, c *Cell) ([]byte, bool) {
	return c.number().appendDecimal(dst, s.scale), s.quoted
}

func (s sum) Decimals() (int, bool) { return s.scale, true }

func (sum) AppendState(dst []byte, c *Cell) []byte { return appendNumber(dst, c) }

func (sum) DecodeState(data []byte, c *Cell) ([]byte, error) { return decodeNumber(data, c) }

// addNumber, removeNumber and the state of a sum and a count serve sum and avg.
func addNumber(c *Cell, v int64) error {
	n, err := grow(c.N)
	if err != nil {
		return err
	}
	total, ok := c.number().add(fromInt64(v))
	if !ok {
		return ErrOverflow
	}
	c.N = n
	c.setNumber(total)
	return nil
}

func removeNumber(c *Cell, v int64) error {
	if c.N == 0 {
		return ErrNotHeld
	}
	total, ok := c.number().sub(fromInt64(v))
	if !ok {
		return ErrOverflow
	}
	c.N--
	c.setNumber(total)
	return nil
}

func appendNumber(dst []byte, c *Cell) []byte {
	return c.number().appendState(appendCount(dst, c.N))
}

func decodeNumber(data []byte, c *Cell) ([]byte, error) {
	*c = Cell{}
	n, data, err := decodeCount(data)
	if err != nil {
		return nil, err
	}
	total, data, err := decodeInt128(data)
	if err != nil {
		return nil, err
	}
	c.N = n
	c.setNumber(total)
	return data, nil
}

package aggregate

import "github.com/tidemark-mesh/tidemark/pkg/policy"

// edge is what first and last have in common. On a stream with retractions all events
// are kept, since the one at the edge may be withdrawn; otherwise that one is enough.
type edge struct {
	name    string
	last    bool
	keepAll bool
	isText  bool
	scale   int
	quoted  bool
}

func newEdge(d declaration, name string, last bool) (Func, error) {
	if d.value == nil {
		return nil, errNoValue
	}
	e := edge{name: name, last: last, keepAll: d.retractions, isText: d.value.Type == policy.String}
	if e.isText {
		e.quoted = true
		return e, nil
	}
	var err error
	e.scale, err = numberOf(d.value)
	e.quoted = d.value.Type == policy.Decimal
	return e, err
}

func (e edge) Name() string { return e.name }

// moment answers what is kept of an event: of its value only what the type tells.
func (e edge) moment(in *Input) moment {
	m := moment{time: in.Time, source: text(in.Source), id: text(in.ID)}
	if e.isText {
		m.text = text(in.Value.Text)
	} else {
		m.number = number(in.Value.Int)
	}
	return m
}

func (e edge) Add(c *Cell, in *Input) error {
	n, err := grow(c.N)
	if err != nil {
		return err
	}
	if c.Ext == nil {
		c.Ext = new(Multiset)
	}
	moments, m := &c.Ext.moments, e.moment(in)
	switch {
	case e.keepAll:
		err = moments.add(m)
	case c.N == 0, e.beats(m, e.held(c)):
		moments.only(m)
	}
	if err != nil {
		return err
	}
	c.N = n
	return nil
}

// beats tells whether m is further out than the one held.
func (e edge) beats(m, held moment) bool {
	if e.last {
		return m.compare(held) > 0
	}
	return m.compare(held) < 0
}

func (e edge) held(c *Cell) moment {
	if e.last {
		return c.Ext.moments.greatest()
	}
	return c.Ext.moments.least()
}

func (e edge) Remove(c *Cell, in *Input) error {
	if !e.keepAll {
		return ErrNotRetractable
	}
	if c.Ext == nil || !c.Ext.moments.remove(e.moment(in)) {
		return ErrNotHeld
	}
	c.shrink()
	return nil
}

func (e edge) AppendResult(dst []byte, c *Cell) ([]byte, bool) {
	held := e.held(c)
	if e.isText {
		return append(dst, held.text...), true
	}
	return fromInt64(int64(held.number)).appendDecimal(dst, e.scale), e.quoted
}

func (e edge) Decimals() (int, bool) { return e.scale, !e.isText }

// AppendState writes the count of events beside the moments: without retractions the one
// held does not tell it.
func (e edge) AppendState(dst []byte, c *Cell) []byte {
	dst = appendCount(dst, c.N)
	if c.Ext == nil {
		return appendCount(dst, 0)
	}
	return c.Ext.moments.appendState(dst)
}

func (e edge) DecodeState(data []byte, c *Cell) (rest []byte, err error) {
	ext := new(Multiset)
	return decodeExt(data, c, ext, &ext.moments, e.keepAll)
}

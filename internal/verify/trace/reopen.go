package trace

import (
	"fmt"
	"strconv"
	"strings"
)

// Reopen is a reopen line: what a reconciler does. The record itself is made when the
// trace runs, since it holds what was published before.
type Reopen struct {
	Key      string
	Epoch    uint64
	AsOf     string // name of a place line; "" = right before the record
	Add      []Ref  // events that were TOO_LATE
	Withdraw []Ref  // retractions that were TOO_LATE
	Late     bool   // everything of the key that was TOO_LATE before AsOf and was not handed back yet
	Auto     bool   // restore what was published and final at AsOf; else nothing
	Parts    int    // numbered parts, each in a frame of its own before it; 1 = single
	Other    bool   // of another policy generation
}

// Ref names an event of the trace.
type Ref struct{ Source, ID string }

// reopen reads a reopen line.
func (p *parser) reopen() (r *Reopen, err error) {
	a := p.attrs
	r = &Reopen{Key: a.take("key", "k"), AsOf: a.take("asof", ""), Other: a.take("generation", "") == "other"}
	if _, known := p.trace.Places[r.AsOf]; r.AsOf != "" && !known {
		return nil, fmt.Errorf("there is no place %q above", r.AsOf)
	}
	switch restore := a.take("restore", "auto"); restore {
	case "auto", "none":
		r.Auto = restore == "auto"
	default:
		return nil, fmt.Errorf("restore is %q; write auto or none", restore)
	}
	if r.Epoch, err = parseUint(a.take("epoch", "1")); err != nil {
		return nil, err
	}
	if r.Parts, err = strconv.Atoi(a.take("parts", "1")); err != nil {
		return nil, err
	}
	r.Late = a.take("late", "no") == "yes"
	r.Add, r.Withdraw = refs(a.take("add", "")), refs(a.take("withdraw", ""))
	return r, nil
}

// refs reads ids, or source+id.
func refs(text string) (out []Ref) {
	if text == "" {
		return nil
	}
	for _, item := range strings.Split(text, ",") {
		r := Ref{Source: "shop", ID: item}
		if source, id, ok := strings.Cut(item, "+"); ok {
			r = Ref{Source: source, ID: id}
		}
		out = append(out, r)
	}
	return out
}

// place names the position behind the frames so far.
func (p *parser) place(name string) error {
	if name == "" || p.block != nil {
		return fmt.Errorf("a place needs a name=, and stands between frames")
	}
	p.trace.Places[name] = len(p.trace.Frames)
	return nil
}

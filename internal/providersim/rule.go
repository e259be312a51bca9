package providersim

import (
	"errors"
	"fmt"
)

// Rule gives some requests a mode. Without Key, Nth and Every it is for all of them.
// Requests are counted from 1 since the simulator was started: those of the key where the
// rule names one, else all.
type Rule struct {
	Mode  Mode   `json:"mode"`
	Key   string `json:"effectKey,omitempty"`
	Nth   int    `json:"nth,omitempty"`   // the n-th request alone
	Every int    `json:"every,omitempty"` // every n-th request
	Times int    `json:"times,omitempty"` // how many requests it is good for; 0 = any number
}

func (r *Rule) check() error {
	switch {
	case r.Mode.Name == "":
		return fmt.Errorf("the rule has no mode; modes are %v", ModeNames())
	case r.Nth < 0 || r.Every < 0 || r.Times < 0:
		return errors.New("nth, every and times of a rule count from 1")
	case r.Nth > 0 && r.Every > 0:
		return errors.New("a rule has nth or every, not both")
	}
	return nil
}

// fits tells whether the rule is for a request: the n-th of its key, and the all-th.
func (r *Rule) fits(key string, n, all int) bool {
	at := all
	if r.Key != "" {
		at = n
	}
	return (r.Key == "" || r.Key == key) && (r.Nth == 0 || r.Nth == at) && (r.Every == 0 || at%r.Every == 0)
}

// rules decide the mode of a request. The newest rule that fits wins; where none does,
// the mix decides.
type rules struct {
	list  []Rule
	mix   Mix
	seed  uint64
	all   int
	byKey map[string]int
}

// next counts a request and answers its mode.
func (s *rules) next(key string) Mode {
	s.all++
	s.byKey[key]++
	n := s.byKey[key]
	for i := len(s.list) - 1; i >= 0; i-- {
		r := &s.list[i]
		if !r.fits(key, n, s.all) {
			continue
		}
		mode := r.Mode
		if r.Times == 1 {
			s.list = append(s.list[:i:i], s.list[i+1:]...)
		} else if r.Times > 1 {
			r.Times--
		}
		return mode
	}
	return s.mix.draw(s.seed, key, n)
}

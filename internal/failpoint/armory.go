package failpoint

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// mode is what a point does.
type mode string

const (
	none  mode = ""
	crash mode = "crash"
	fail  mode = "error"
	stall mode = "stall"
)

// action is one mode with what belongs to it.
type action struct {
	mode mode
	wait time.Duration // stall
}

// armory knows what is armed and counts hits. Safe for concurrent use.
type armory struct {
	armed map[string]map[int]action // by point and hit, from 1
	mu    sync.Mutex
	hits  map[string]int
}

// parse reads NAME=MODE@HIT, several parted by semicolons. A name that is no point is an
// error: a test of nothing must not pass.
func parse(text string) (*armory, error) {
	a := &armory{armed: map[string]map[int]action{}, hits: map[string]int{}}
	known := map[string]bool{}
	for _, p := range append(Points(), EffectPoints()...) {
		known[p.Name] = true
	}
	for _, spec := range strings.Split(text, ";") {
		if spec = strings.TrimSpace(spec); spec == "" {
			continue
		}
		name, rest, _ := strings.Cut(spec, "=")
		how, which, found := strings.Cut(rest, "@")
		n, err := strconv.Atoi(which)
		if !found || err != nil || n < 1 {
			return nil, fmt.Errorf("%s: %q: write NAME=crash|error|stall(DURATION)@HIT, hits from 1", Variable, spec)
		}
		if !known[name] {
			return nil, fmt.Errorf("%s: %q: there is no point %q", Variable, spec, name)
		}
		do, err := parseAction(how)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", Variable, spec, err)
		}
		if a.armed[name] == nil {
			a.armed[name] = map[int]action{}
		}
		a.armed[name][n] = do
	}
	return a, nil
}

func parseAction(text string) (action, error) {
	if inner, found := strings.CutPrefix(text, string(stall)+"("); found {
		wait, err := time.ParseDuration(strings.TrimSuffix(inner, ")"))
		if err != nil || wait <= 0 || !strings.HasSuffix(inner, ")") {
			return action{}, fmt.Errorf("stall needs a duration, as in stall(2s)")
		}
		return action{mode: stall, wait: wait}, nil
	}
	switch m := mode(text); m {
	case crash, fail:
		return action{mode: m}, nil
	}
	return action{}, fmt.Errorf("mode %q: crash, error and stall(DURATION) exist", text)
}

// hit counts and answers what is armed for this hit.
func (a *armory) hit(name string) (action, int) {
	of := a.armed[name]
	if of == nil {
		return action{}, 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hits[name]++
	n := a.hits[name]
	return of[n], n
}

package providersim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Mode is what becomes of a request. Its text form is a name, with a duration where the
// name has one: "accept", "hold:2m", "execute-502".
type Mode struct {
	Name   string
	Status int           // execute-NNN and answer-NNN
	For    time.Duration // modes that take one
}

// Names of modes. Those before doNothing execute the action.
const (
	accept     = "accept"      // execute and answer
	loseAnswer = "lose-answer" // execute, then close the connection without an answer
	execute    = "execute"     // execute, then answer with the status: execute-500
	redirect   = "redirect"    // execute, then answer 307 to the same place
	halfBody   = "half-body"   // execute, then send half of the answer and close
	garbage    = "garbage"     // execute, then answer 200 with a body that is no JSON
	delay      = "delay"       // execute at once, answer after the duration
	hold       = "hold"        // execute and answer after the duration, whether or not the caller still waits
	pending    = "pending"     // answer 202 at once, execute after the duration
	hide       = "hide"        // execute, lose the answer, and be found by queries only after the duration
	forget     = "forget"      // execute, lose the answer, and forget the idempotency key after the duration

	doNothing = "do-nothing" // answer as if it were executed
	drop      = "drop"       // close the connection
	answer    = "answer"     // answer with the status: answer-500
	inFlight  = "in-flight"  // answer 409
	throttle  = "throttle"   // answer 429, with Retry-After where there is a duration
	reject    = "reject"     // answer 422 account_closed
)

// duration says which modes take one; those with true must have it.
var duration = map[string]bool{delay: true, hold: true, pending: true, hide: true, forget: true, throttle: false}

var plain = []string{accept, loseAnswer, redirect, halfBody, garbage, delay, hold, pending, hide, forget, doNothing, drop, inFlight, throttle, reject}

// Accept is the mode of a provider that works.
var Accept = Mode{Name: accept}

// ModeNames answers how modes are written.
func ModeNames() []string {
	return []string{
		"accept", "lose-answer", "execute-NNN", "redirect", "half-body", "garbage", "delay:D", "hold:D", "pending:D", "hide:D", "forget:D",
		"do-nothing", "drop", "answer-NNN", "in-flight", "throttle[:D]", "reject",
	}
}

// ParseMode reads the text form.
func ParseMode(text string) (Mode, error) {
	name, length, timed := strings.Cut(text, ":")
	m := Mode{Name: name}
	if kind, status, numbered := cutStatus(name); numbered {
		m.Name, m.Status = kind, status
	} else if !slices.Contains(plain, name) {
		return Mode{}, fmt.Errorf("no mode %q; modes are %s", text, strings.Join(ModeNames(), ", "))
	}
	needs, takes := duration[m.Name]
	switch {
	case timed && !takes:
		return Mode{}, fmt.Errorf("mode %q: %s takes no duration", text, name)
	case !timed && needs:
		return Mode{}, fmt.Errorf("mode %q: write a duration behind it, such as %s:30s", text, name)
	case timed:
		var d Duration
		if d.UnmarshalText([]byte(length)) != nil || d == 0 {
			return Mode{}, fmt.Errorf("mode %q: write a duration above 0, such as %s:30s", text, name)
		}
		m.For = time.Duration(d)
	}
	return m, nil
}

func cutStatus(name string) (kind string, status int, ok bool) {
	for _, kind := range []string{execute, answer} {
		digits, found := strings.CutPrefix(name, kind+"-")
		status, err := strconv.Atoi(digits)
		if found && err == nil && status >= 200 && status <= 599 {
			return kind, status, true
		}
	}
	return "", 0, false
}

// String answers the text form.
func (m Mode) String() string {
	text := m.Name
	if m.Status != 0 {
		text += "-" + strconv.Itoa(m.Status)
	}
	if m.For != 0 {
		text += ":" + m.For.String()
	}
	return text
}

// MarshalText writes what String answers.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what ParseMode reads.
func (m *Mode) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMode(string(text))
	return err
}

// Mix is modes by weight. Its text form is "accept=80,lose-answer=15,hold:2s=5"; one mode
// alone stands for itself.
type Mix []Share

// Share is one mode of a mix.
type Share struct {
	Mode   Mode
	Weight uint32
}

// ParseMix reads the text form.
func ParseMix(text string) (Mix, error) {
	var mix Mix
	for part := range strings.SplitSeq(text, ",") {
		name, digits, weighed := strings.Cut(strings.TrimSpace(part), "=")
		m, err := ParseMode(name)
		if err != nil {
			return nil, err
		}
		weight := uint64(1)
		if weighed {
			if weight, err = strconv.ParseUint(digits, 10, 16); err != nil || weight == 0 {
				return nil, fmt.Errorf("mode %q: the weight must be a number from 1 to 65535", part)
			}
		}
		mix = append(mix, Share{m, uint32(weight)})
	}
	return mix, nil
}

// ParseQueryMix reads a mix for queries.
func ParseQueryMix(text string) (Mix, error) {
	mix, err := ParseMix(text)
	if err != nil {
		return nil, err
	}
	return mix, mix.forQueries()
}

// forQueries refuses a mix with a mode that means nothing for a query.
func (m Mix) forQueries() error {
	for _, s := range m {
		switch s.Mode.Name {
		case accept, garbage, delay, drop, answer, throttle:
		default:
			return fmt.Errorf("mode %s is not for queries; those are accept, garbage, delay:D, drop, answer-NNN and throttle[:D]", s.Mode)
		}
	}
	return nil
}

// String answers the text form.
func (m Mix) String() string {
	if len(m) == 1 {
		return m[0].Mode.String()
	}
	parts := make([]string, len(m))
	for i, s := range m {
		parts[i] = s.Mode.String() + "=" + strconv.FormatUint(uint64(s.Weight), 10)
	}
	return strings.Join(parts, ",")
}

// MarshalText writes what String answers.
func (m Mix) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what ParseMix reads.
func (m *Mix) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMix(string(text))
	return err
}

// draw answers the mode of the n-th request of a key. It depends on nothing else, so that
// a run with the same seed meets the same faults in whatever order requests arrive.
func (m Mix) draw(seed uint64, key string, n int) Mode {
	total := uint64(0)
	for _, s := range m {
		total += uint64(s.Weight)
	}
	if total == 0 {
		return Accept
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%d %d %s", seed, n, key))
	at := binary.BigEndian.Uint64(hash[:]) % total
	i := slices.IndexFunc(m, func(s Share) bool {
		if at < uint64(s.Weight) {
			return true
		}
		at -= uint64(s.Weight)
		return false
	})
	return m[i].Mode
}

// executes tells whether the mode carries the action out, sooner or later.
func (m Mode) executes() bool {
	switch m.Name {
	case doNothing, drop, answer, inFlight, throttle, reject:
		return false
	}
	return true
}

// hiddenFor answers how long queries do not find what was executed.
func (m Mode) hiddenFor() time.Duration {
	if m.Name == hide {
		return m.For
	}
	return 0
}

// forgetAfter answers how long the key is known, where the mode says so.
func (m Mode) forgetAfter() Duration {
	if m.Name == forget {
		return Duration(m.For)
	}
	return 0
}

package bench

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// Shape of the workload. Shares are in tenths of a percent of all events.
const (
	Partitions   = 8               // source partitions, and key partitions
	Disorder     = 5 * time.Minute // of on-time events
	Lateness     = 24 * time.Hour  // of late events that are accepted
	beyondFrom   = 120 * time.Hour // events beyond lateness are older than this: too late by any watermark of the run
	beyondTo     = 168 * time.Hour // and younger than this
	shareLate    = 80              // late, accepted
	shareTwin    = 10              // exact duplicates
	shareTooLate = 5               // beyond lateness
	shareFuture  = 1               // event time far in the future
	shareNoTime  = 1               // no event time at all
	refunds      = 50              // negative amounts
	silent       = Partitions - 1  // the source partition that is silent for the middle third
	recent       = 1024            // events that a duplicate may repeat
	// settled is the share of the input, in percent, before which nothing is beyond
	// lateness: no watermark stands yet that could tell.
	settled = 20
)

// Spec names one workload. The same Spec is the same events.
type Spec struct {
	Events int    `json:"events"`
	Keys   int    `json:"keys"`
	Hours  int    `json:"hours"` // of event time, over all events
	Seed   uint64 `json:"seed"`
	Window Window `json:"window"` // what they are computed in; the events are the same
}

func (s Spec) span() time.Duration { return time.Duration(s.Hours) * time.Hour }

// Class is what an event must become.
type Class uint8

// Classes of events.
const (
	OnTime  Class = iota // at most Disorder old
	Late                 // at most Lateness old: accepted, a correction if its window was published
	Twin                 // an exact duplicate
	TooLate              // beyond lateness: a late record, no window takes it
	Future               // quarantined
	NoTime               // quarantined
)

// Event is one generated event.
type Event struct {
	Number    int // of the event that it is, or that it repeats
	Class     Class
	Partition int // of the source
	Key       int
	Cents     int64
	Time      envelope.EventTime
	Now       envelope.EventTime // where the whole workload stands
}

// Begin answers the event time of the first event: in the past on any clock.
func Begin() envelope.EventTime {
	return envelope.EventTime(time.Date(2025, 6, 2, 0, 0, 0, 0, time.UTC).UnixMicro())
}

// Generator makes the events of a Spec in order. It is not safe for concurrent use.
type Generator struct {
	spec   Spec
	random *rand.Rand
	keys   *rand.Zipf
	next   int
	ring   [recent]Event
	had    int // events that stood in ring so far
}

// NewGenerator starts at the first event.
func NewGenerator(s Spec) *Generator {
	random := rand.New(rand.NewPCG(s.Seed, uint64(s.Events)<<20^uint64(s.Keys)))
	return &Generator{spec: s, random: random, keys: rand.NewZipf(random, 1.1, 1, uint64(s.Keys-1))}
}

// Next answers the next event, or false at the end.
func (g *Generator) Next() (Event, bool) {
	if g.next >= g.spec.Events {
		return Event{}, false
	}
	n := g.next
	g.next++
	roll := g.random.IntN(1000)
	quiet := g.quiet(n)
	if g.had >= recent && roll < shareTwin {
		twin := g.ring[g.random.IntN(recent)]
		if !quiet || twin.Partition != silent {
			twin.Class = Twin
			return twin, true
		}
	}
	ev := Event{Number: n, Key: int(g.keys.Uint64()), Cents: 100 + g.random.Int64N(50_000), Partition: g.partition(quiet)}
	if g.random.IntN(1000) < refunds {
		ev.Cents = -ev.Cents
	}
	g.place(&ev, n, roll-shareTwin)
	if ev.Class == OnTime || ev.Class == Late {
		g.ring[g.had%recent] = ev
		g.had++
	}
	return ev, true
}

// quiet tells whether the silent partition is silent at event n.
func (g *Generator) quiet(n int) bool { return n >= g.spec.Events/3 && n < g.spec.Events*2/3 }

func (g *Generator) partition(quiet bool) int {
	if quiet {
		return g.random.IntN(Partitions - 1)
	}
	return g.random.IntN(Partitions)
}

// place gives ev its class and event time.
func (g *Generator) place(ev *Event, n, roll int) {
	now := Begin().Add(int64(float64(n) / float64(g.spec.Events) * float64(g.spec.span().Microseconds())))
	ev.Now = now
	between := func(from, to time.Duration) envelope.EventTime {
		return now.Add(-from.Microseconds() - g.random.Int64N((to - from).Microseconds()))
	}
	switch {
	case roll >= 0 && roll < shareLate:
		ev.Class, ev.Time = Late, between(Disorder, Lateness)
	case roll >= shareLate && roll < shareLate+shareTooLate && n >= g.spec.Events/100*settled:
		ev.Class, ev.Time = TooLate, between(beyondFrom, beyondTo)
	case roll == shareLate+shareTooLate:
		ev.Class, ev.Time = Future, now.Add((100 * 365 * 24 * time.Hour).Microseconds())
	case roll == shareLate+shareTooLate+shareFuture:
		ev.Class, ev.Time = NoTime, now
	default:
		ev.Class, ev.Time = OnTime, between(0, Disorder)
	}
}

// AppendID appends the event's id.
func (ev *Event) AppendID(dst []byte) []byte {
	return appendPadded(append(dst, "o-"...), ev.Number, 10)
}

// AppendKey appends the event's key as it stands in the JSON.
func AppendKey(dst []byte, key int) []byte { return appendPadded(append(dst, "c-"...), key, 6) }

// AppendLine appends the event as one line of JSON of about 200 bytes.
func (ev *Event) AppendLine(dst []byte) []byte {
	kind := "order"
	if ev.Cents < 0 {
		kind = "refund"
	}
	dst = ev.AppendID(append(dst, `{"id":"`...))
	dst = append(append(dst, `","type":"`...), kind...)
	dst = AppendKey(append(dst, `","order":{"customer":"`...), ev.Key)
	dst = appendCents(append(dst, `","amount":`...), ev.Cents)
	dst = append(dst, `,"currency":"EUR"`...)
	if ev.Class != NoTime {
		dst = appendTime(append(dst, `,"occurred_at":"`...), ev.Time)
		dst = append(dst, '"')
	}
	dst = appendPadded(append(dst, `,"channel":"web","shop":"shop-`...), ev.Number%97, 3)
	return append(dst, "\",\"note\":\"benchmark of hourly revenue\"}}\n"...)
}

func appendPadded(dst []byte, n, width int) []byte {
	var text [20]byte
	digits := strconv.AppendInt(text[:0], int64(n), 10)
	for range width - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

func appendCents(dst []byte, cents int64) []byte {
	if cents < 0 {
		dst, cents = append(dst, '-'), -cents
	}
	dst = append(strconv.AppendInt(dst, cents/100, 10), '.')
	return append(dst, byte('0'+cents/10%10), byte('0'+cents%10))
}

func appendTime(dst []byte, t envelope.EventTime) []byte {
	return time.UnixMicro(int64(t)).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000000Z")
}

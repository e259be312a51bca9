package conformance

import (
	"fmt"
	"math/rand/v2"

	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// generator writes random traces as text, from one seed: several source partitions,
// disorder, pauses, resumes, silence, duplicates, conflicts, late bridges, retractions and
// reconcilers that lag, repeat and race.
type generator struct {
	*rand.Rand
	kind      policy.WindowKind
	conflicts bool
	lines     []string

	unit       int64 // microseconds of event time that a step is
	now        int64 // the busiest event time, in steps
	longest    int64 // window or gap, in steps
	spread     int64 // how far events are behind it, in steps
	keys       int
	partitions int
	events     []randomEvent
	marks      []randomMark
	clock      int64 // ingestNow, milliseconds
	places     []string
	epoch      int
	next       int
}

type randomEvent struct {
	id, key     string
	t           int64 // microseconds
	part, value int
	withdrawn   bool
}

type randomMark struct {
	max        int64
	any        bool
	generation int
	epoch      int
	finished   bool
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g *generator) of(choices ...int64) int64 { return choices[g.IntN(len(choices))] }

func (g *generator) line(format string, args ...any) {
	g.lines = append(g.lines, fmt.Sprintf(format, args...))
}

// randomTrace answers the lines of the trace that a seed stands for.
func randomTrace(seed uint64, conflicts bool) []string {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 4)), conflicts: conflicts, unit: 1000, epoch: 1}
	g.kind = allKinds()[g.IntN(4)]
	g.spread, g.keys, g.partitions = g.of(6, 15, 40), 1+g.IntN(2), int(g.of(1, 1, 2, 3))
	g.marks = make([]randomMark, g.partitions)
	g.policy()
	for range 20 + g.IntN(60) {
		g.step()
	}
	g.close()
	return g.lines
}

func (g *generator) policy() {
	window := ""
	longest := int64(0)
	switch g.kind {
	case policy.Tumbling:
		longest = g.of(1, 7, 20)
		window = fmt.Sprintf("size=%d offset=%d", longest, g.IntN(int(longest)))
	case policy.Hopping:
		longest = g.of(4, 10, 20)
		window = fmt.Sprintf("size=%d every=%d offset=%d", longest, 1+g.Int64N(longest), g.IntN(int(longest)))
	case policy.Session:
		longest = g.of(1, 3, 6, 10)
		window = fmt.Sprintf("gap=%d rule=r1", longest)
	case policy.Calendar:
		unit := []string{"day", "week", "month"}[g.IntN(3)]
		change := clockChanges()[g.IntN(len(clockChanges()))]
		g.unit, g.now = 6*3600*1_000_000, int64(change.at)/(6*3600*1_000_000)
		longest = map[string]int64{"day": 5, "week": 29, "month": 125}[unit]
		window = fmt.Sprintf("calendar=%s zone=%s", unit, change.zone)
	}
	step := g.unit / 1000 // milliseconds
	g.longest = longest
	late := g.of(0, 5, 20, 60)
	g.line("policy %s D=%d L=%d T=%d idle=%s ids=%d retractions=yes sources=shop:%d values=v:decimal:2,s:string results=n=count(),sum=sum(v),top=max(v),low=min(s),mean=avg(v),first=first(v),last=last(s),kinds=distinct(s)",
		window, g.of(0, 0, 2, 5)*step, late*step, g.of(0, 5), []string{"hold", "advance"}[g.IntN(2)], (late+longest+g.of(0, 10, 1000))*step, g.partitions)
	g.line("loose")
}

func (g *generator) step() {
	switch {
	case g.chance(8):
		g.next++
		name := fmt.Sprintf("p%d", g.next)
		g.places = append(g.places, name)
		g.line("place name=%s", name)
	case g.chance(6):
		g.reopen()
	case g.chance(38):
		g.mark(g.IntN(g.partitions))
	case g.chance(15):
		g.line("frame")
		for range 1 + g.IntN(4) {
			if g.chance(20) {
				g.mark(g.IntN(g.partitions))
			} else {
				g.event()
			}
		}
		g.line("end")
	default:
		g.event()
	}
}

func (g *generator) event() {
	if len(g.events) > 0 {
		at := g.IntN(len(g.events))
		e := &g.events[at]
		switch {
		case g.chance(7):
			g.write("E id="+e.id, e, "")
			return
		case g.chance(3) && g.conflicts:
			g.write("E id="+e.id, e, " note=other")
			return
		case g.chance(16) && (g.conflicts || !e.withdrawn):
			e.withdrawn = true
			g.next++
			g.write(fmt.Sprintf("R id=r%d withdraws=%s", g.next, e.id), e, "")
			return
		}
	}
	g.next++
	back := g.Int64N(g.spread)
	t := (g.now - back) * g.unit
	switch {
	case g.chance(10):
		t += g.of(-1, 1)
	case g.chance(5):
		t -= g.Int64N(80) * g.unit
	case len(g.events) > 0 && g.chance(15): // a window, or a gap, from another
		last := g.events[max(0, len(g.events)-12):]
		t = last[g.IntN(len(last))].t + g.of(-1, 1)*g.longest*g.unit + g.of(0, 0, 0, 1, -1)
	case len(g.events) > 1 && g.chance(20): // between two others
		last := g.events[max(0, len(g.events)-12):]
		t = (last[g.IntN(len(last))].t + last[g.IntN(len(last))].t) / 2
	}
	e := randomEvent{id: fmt.Sprintf("e%d", g.next), key: fmt.Sprintf("k%d", g.IntN(g.keys)), t: t, part: g.IntN(g.partitions), value: g.IntN(7) - 2}
	m := &g.marks[e.part]
	if !m.any || t > m.max {
		m.any, m.max = true, t
	}
	g.now += g.of(0, 0, 0, 1, 1, 2, 9)
	if g.chance(6) { // its retraction comes first
		e.withdrawn = true
		g.write(fmt.Sprintf("R id=r%d withdraws=%s", g.next, e.id), &e, "")
	}
	g.events = append(g.events, e)
	g.write("E id="+e.id, &e, "")
}

func (g *generator) write(what string, e *randomEvent, more string) {
	g.line("%s key=%s part=%d t=%dus v=%d.50 s=word%d origin=%s%s", what, e.key, e.part, e.t, e.value, e.value*e.value%4, []string{"live", "live", "replay", "backfill"}[g.IntN(4)], more)
}

func (g *generator) mark(part int) {
	m := &g.marks[part]
	highest := "-inf"
	if m.any {
		highest = fmt.Sprintf("%dus", m.max)
	}
	g.clock += g.of(0, 200, 5000, 20000, 61000)
	quiet, pending, paused := g.of(0, 0, 4, 5, 60), g.of(0, 0, 0, 1), "no"
	if g.chance(10) {
		paused = "yes"
	}
	epoch := 1 + m.epoch
	switch {
	case g.chance(5):
		m.generation++
	case g.chance(3):
		m.epoch++
		epoch++
	case g.chance(3) && m.epoch > 0: // of an owner before
		epoch--
	case g.chance(1):
		m.finished = true
	}
	finished := "no"
	if m.finished {
		finished = "yes"
	}
	g.line("M part=%d max=%s quiet=%d pending=%d paused=%s finished=%s epoch=%d gen=%d now=%d", part, highest, quiet, pending, paused, finished, epoch, 1+m.generation, g.clock)
}

// reopen is a reconciler: it may lag, repeat itself, come after one of a higher epoch, or
// belong to another generation.
func (g *generator) reopen() {
	asof := ""
	if len(g.places) > 0 && g.chance(70) {
		asof = " asof=" + g.places[max(0, len(g.places)-1-g.IntN(3))]
	}
	if g.chance(10) {
		g.epoch++
	}
	epoch, more := g.epoch, ""
	switch {
	case g.chance(5):
		epoch--
	case g.chance(5):
		more = " generation=other"
	case g.chance(20):
		more = fmt.Sprintf(" parts=%d", 2+g.IntN(3))
	}
	line := fmt.Sprintf("reopen key=k%d late=yes epoch=%d%s%s", g.IntN(g.keys), epoch, asof, more)
	g.line("%s", line)
	if g.chance(15) {
		g.line("%s", line)
	}
}

// close brings W far behind everything and hands back what is late, until nothing is.
func (g *generator) close() {
	if !g.conflicts {
		g.line("batch")
	}
	end := (g.now + 100_000) * g.unit
	for range 2 { // the second time nobody is silent
		for part := range g.partitions {
			g.line("M part=%d max=%dus epoch=99 now=%d", part, end, g.clock)
		}
	}
	g.epoch++
	for range 2 {
		for key := range g.keys {
			g.line("reopen key=k%d late=yes epoch=%d", key, g.epoch)
		}
	}
	g.line("M part=0 max=%dus epoch=99 now=%d", end, g.clock)
}

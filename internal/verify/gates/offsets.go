package gates

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// epochShift splits a push offset into epoch and n (offset = epoch<<32 | n).
const epochShift = 32

// offsetSet knows which offsets of one source partition and epoch were seen.
type offsetSet struct {
	words  []uint64
	marked uint64 // n of the highest mark
}

// add notes n and answers whether it was there before.
func (s *offsetSet) add(n uint64) (again bool) {
	word := int(n / 64)
	if word >= len(s.words) {
		s.words = append(s.words, make([]uint64, word-len(s.words)+1)...)
	}
	bit := uint64(1) << (n % 64)
	again = s.words[word]&bit != 0
	s.words[word] |= bit
	return again
}

// missing answers how many of 1..marked were not seen, and the first of them.
func (s *offsetSet) missing() (count, first uint64) {
	for n := uint64(1); n <= s.marked; {
		word := int(n / 64)
		if word >= len(s.words) {
			if first == 0 {
				first = n
			}
			return count + s.marked - n + 1, first
		}
		if n%64 == 0 && n+63 <= s.marked && s.words[word] == ^uint64(0) {
			n += 64
			continue
		}
		if s.words[word]&(1<<(n%64)) == 0 {
			count++
			if first == 0 {
				first = n
			}
		}
		n++
	}
	return count, first
}

type epochKey struct {
	source    string
	partition uint32
	epoch     uint64
}

// positions gathers the source positions of events and quarantine records.
type positions struct {
	sets map[epochKey]*offsetSet
	// replays holds the events of source partition replay until their quarantine records
	// are met: what is left has none.
	replays  map[replay]string // to the event's id
	replayed uint64            // distinct
}

// replay is the position of an event that was taken in again from quarantine.
type replay struct {
	source   string
	sequence uint64 // of the quarantine record
}

func newPositions() *positions {
	return &positions{sets: map[epochKey]*offsetSet{}, replays: map[replay]string{}}
}

// replay notes an event of source partition replay. Its record may be replayed again
// after an interruption: the id index takes the event once, so a repetition is no fault.
func (p *positions) replay(ev *envelope.Event, g *Gate) {
	g.look(1)
	if ev.Origin != envelope.OriginReplay {
		g.fail("source %s: event %q is of source partition replay, but its origin is %d", ev.Source, ev.ID, ev.Origin)
	}
	k := replay{ev.Source, ev.SourceOffset}
	if _, had := p.replays[k]; !had {
		p.replayed++
		p.replays[replay{string([]byte(ev.Source)), ev.SourceOffset}] = string([]byte(ev.ID))
	}
}

// checkReplays fails the gate for every replayed event without a quarantine record.
func (p *positions) checkReplays(g *Gate) {
	orphans := make([]replay, 0, len(p.replays))
	for k := range p.replays {
		orphans = append(orphans, k)
	}
	slices.SortFunc(orphans, func(a, b replay) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.sequence, b.sequence))
	})
	for _, k := range orphans {
		g.fail("source %s: event %q was replayed from quarantine sequence %d, where no record of that source stands", k.source, p.replays[k], k.sequence)
	}
}

func (p *positions) set(source string, partition uint32, epoch uint64) *offsetSet {
	k := epochKey{source, partition, epoch}
	s := p.sets[k]
	if s == nil {
		k.source = string([]byte(source))
		s = &offsetSet{}
		p.sets[k] = s
	}
	return s
}

// add notes one position; twice is the gate that counts repetitions.
func (p *positions) add(source string, partition uint32, offset uint64, twice *Gate) {
	twice.look(1)
	if p.set(source, partition, offset>>epochShift).add(offset & (1<<epochShift - 1)) {
		twice.fail("source %s partition %d: offset %s stands twice", source, partition, offsetText(offset))
	}
}

// mark notes what a mark promises: every offset up to its own is durable.
func (p *positions) mark(m *envelope.Mark) {
	if m.Offset == 0 {
		return
	}
	s := p.set(m.Source, m.Partition, m.Offset>>epochShift)
	s.marked = max(s.marked, m.Offset&(1<<epochShift-1))
}

// check fails the gate for every promised offset that is nowhere.
func (p *positions) check(g *Gate) {
	keys := make([]epochKey, 0, len(p.sets))
	for k := range p.sets {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b epochKey) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.partition, b.partition), cmp.Compare(a.epoch, b.epoch))
	})
	for _, k := range keys {
		s := p.sets[k]
		g.look(s.marked)
		if count, first := s.missing(); count > 0 {
			g.fail("source %s partition %d epoch %d: %d offsets up to the mark at %d are missing, the first is %d", k.source, k.partition, k.epoch, count, s.marked, first)
			g.Wrong += count - 1
		}
	}
}

func offsetText(offset uint64) string {
	return fmt.Sprintf("%d (epoch %d)", offset&(1<<epochShift-1), offset>>epochShift)
}

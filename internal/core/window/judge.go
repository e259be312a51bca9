package window

import (
	"fmt"

	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Rules of conflict records.
const (
	RuleOtherDigest      = "other-digest"      // the id is taken by another payload
	RuleSecondRetraction = "second-retraction" // the target is named by a retraction already
	RuleRetractDigest    = "retract-digest"    // retraction and target do not hold the same data
	RuleWithdrawnID      = "withdrawn-id"      // another payload under an id that was withdrawn
)

// arrival is one event under judgement.
type arrival struct {
	ev       *envelope.Event
	time     envelope.EventTime
	windows  []revision.Window // that hold the time, the earliest first
	seq      uint64            // where it stands in the journal
	refused  int               // how many of them, from the first, the live path may no longer change
	hash     [16]byte          // of source and id
	digest   [16]byte
	key      uint32
	keyKnown bool
}

// judge gives an event its class: foreign, older than the extractor, duplicate,
// conflict, too late, or applied. Duplicates are looked for before lateness.
func (o *Operator) judge(ev *envelope.Event) error {
	if ev.Source != o.source || o.source == "" {
		if _, ours := o.sources[ev.Source]; !ours {
			o.totals[classForeign]++
			return nil
		}
		o.source = cloneString(ev.Source)
	}
	if o.frame.time < 0 {
		o.totals[classNoTime]++
		return nil
	}
	if len(ev.Times) != len(o.frame.extractors) || len(ev.Values) != len(o.frame.values) {
		return o.broken(ev, fmt.Sprintf("it has %d times and %d values, its frame names %d and %d",
			len(ev.Times), len(ev.Values), len(o.frame.extractors), len(o.frame.values)))
	}
	a := arrival{ev: ev, time: ev.Times[o.frame.time], seq: o.seq, hash: identity.EventHash(ev.Source, ev.ID), digest: [16]byte(ev.Digest[:16])}
	a.key, a.keyKnown = o.keys.find(ev.Key)
	o.assign(&a)
	switch ev.Op {
	case envelope.Assert:
		return o.assert(&a)
	case envelope.Retract:
		return o.retract(&a)
	}
	return o.broken(ev, fmt.Sprintf("its op is %d", ev.Op))
}

// assign finds the windows of an arrival and which of them refuse it. The watermark passes
// the earlier ones first.
func (o *Operator) assign(a *arrival) {
	if o.sessions != nil {
		o.windows = append(o.windows[:0], revision.Window{Start: a.time, End: a.time.Add(o.sessions.gap)})
	} else if p := o.last; p != nil && o.grid.single() && p.start <= a.time && a.time < p.end {
		o.windows = append(o.windows[:0], revision.Window{Start: p.start, End: p.end})
	} else {
		o.windows = o.grid.appendAll(o.windows[:0], a.time)
	}
	a.windows = o.windows
	for a.refused < len(a.windows) && o.tracker.W() >= a.windows[a.refused].End.Add(o.lateness) {
		a.refused++
	}
}

// known answers the entry of an id under the arrival's key.
func (o *Operator) known(a *arrival, hash [16]byte) (uint32, bool) {
	if !a.keyKnown {
		return 0, false
	}
	return o.ids.find(hash, a.key, o.tracker.W())
}

func (o *Operator) assert(a *arrival) error {
	if ref, had := o.known(a, a.hash); had {
		return o.assertAgain(a, ref)
	}
	if !a.tooLate() {
		if err := o.include(a); err != nil {
			return err
		}
		o.count(a, a.windows[a.refused:])
	}
	o.remember(a, 0)
	o.late(a)
	return nil
}

// assertAgain judges an event whose id is in the index.
func (o *Operator) assertAgain(a *arrival, ref uint32) error {
	e := o.ids.entry(ref)
	same := e.digest == a.digest && e.flags&idRetraction == 0
	switch {
	case e.flags&idReserved != 0 && same:
		// Its retraction came first and waited: both are applied, and change nothing.
		e.flags = e.flags&^idReserved | idNamed
		o.ids.touch(ref)
		o.count(a, a.windows)
	case same:
		o.totals[classDuplicate]++
	case e.flags&idReserved != 0:
		o.conflict(a, RuleRetractDigest, e)
	case e.flags&idNamed != 0:
		o.conflict(a, RuleWithdrawnID, e)
	default:
		o.conflict(a, RuleOtherDigest, e)
	}
	return nil
}

func (o *Operator) retract(a *arrival) error {
	target := identity.EventHash(a.ev.Source, a.ev.Withdraws)
	if ref, had := o.known(a, a.hash); had {
		e := o.ids.entry(ref)
		if e.flags&idRetraction != 0 && e.digest == a.digest && o.ids.targets[ref] == target {
			o.totals[classDuplicate]++
		} else {
			o.conflict(a, RuleOtherDigest, e)
		}
		return nil
	}
	ref, had := o.known(a, target)
	if had {
		e := o.ids.entry(ref)
		if e.flags&(idNamed|idReserved) != 0 {
			o.conflict(a, RuleSecondRetraction, e)
			return nil
		}
		if e.flags&idRetraction != 0 || e.digest != a.digest || e.time != a.time {
			o.conflict(a, RuleRetractDigest, e)
			return nil
		}
	} else if target == a.hash {
		o.conflict(a, RuleRetractDigest, &idEntry{digest: a.digest})
		return nil
	}
	return o.withdraw(a, target, ref, had)
}

// withdraw takes in a retraction that is no conflict: ref is its target, if it is known.
// Where it is too late it is left to the reconciler and changes nothing here.
func (o *Operator) withdraw(a *arrival, target [16]byte, ref uint32, had bool) error {
	if !a.tooLate() && had {
		if err := o.exclude(a, target); err != nil {
			return err
		}
		o.ids.entry(ref).flags |= idNamed
		o.ids.touch(ref)
	}
	if own, kept := o.remember(a, idRetraction); kept {
		o.ids.targets[own] = target
	}
	o.late(a)
	if a.tooLate() {
		return nil
	}
	if !had && o.ids.keeps(a.time, o.tracker.W()) {
		o.ids.insert(idEntry{hash: target, digest: a.digest, time: a.time, key: a.key, flags: idReserved})
	}
	o.count(a, a.windows[a.refused:])
	return nil
}

// remember enters the arrival's id, unless its time to be forgotten has come already;
// its key gets a number if it had none.
func (o *Operator) remember(a *arrival, flags uint32) (ref uint32, kept bool) {
	if !o.ids.keeps(a.time, o.tracker.W()) {
		return 0, false
	}
	if !a.keyKnown {
		a.key, a.keyKnown = o.keys.intern(a.ev.Key), true
	}
	return o.ids.insert(idEntry{hash: a.hash, digest: a.digest, time: a.time, key: a.key, flags: flags}), true
}

// tooLate tells whether the live path may no longer change any of the arrival's windows.
func (a *arrival) tooLate() bool { return a.refused == len(a.windows) }

// count counts an event that these windows took.
func (o *Operator) count(a *arrival, windows []revision.Window) {
	o.totals[classApplied]++
	o.addID(a.hash)
	for i := range windows {
		if o.tracker.W() < windows[i].End {
			o.totals[classOnTime]++
		} else {
			o.totals[classLate]++
		}
	}
}

// late puts out a late record for every window that refused the event.
func (o *Operator) late(a *arrival) {
	if a.refused == 0 {
		return
	}
	if a.tooLate() {
		o.totals[classTooLate]++
	}
	o.totals[classRefused] += uint64(a.refused)
	for _, window := range a.windows[:a.refused] {
		o.out.put(record.AppendLate(o.out.bytes, &record.Late{Event: o.ref(a), Window: window, W: o.tracker.W(), None: a.tooLate()}))
	}
}

// conflict puts out the conflict record of an event that gives way to first.
func (o *Operator) conflict(a *arrival, rule string, first *idEntry) {
	o.totals[classConflict]++
	o.out.put(record.AppendConflict(o.out.bytes, &record.Conflict{Event: o.ref(a), Rule: rule, First: first.digest}))
}

func (o *Operator) ref(a *arrival) record.EventRef {
	ev := a.ev
	return record.EventRef{
		Source: ev.Source, ID: ev.ID, Key: ev.Key, SourcePartition: ev.SourcePartition, SourceOffset: ev.SourceOffset,
		EventTime: a.time, Digest: ev.Digest, Op: ev.Op, Withdraws: ev.Withdraws,
		Place: record.Place{Seq: o.seq, Index: uint32(o.nextIndex)},
	}
}

func (o *Operator) broken(ev *envelope.Event, what string) error {
	return fmt.Errorf("events journal %s/%02d, sequence %d, record %d: event %q of source %s cannot be read: %s; the journal is damaged",
		o.cfg.Policy.Stream, o.cfg.Partition, o.seq, o.nextIndex, ev.ID, ev.Source, what)
}

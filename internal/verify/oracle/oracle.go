package oracle

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/big"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Oracle recomputes one (policy generation, key partition). Feed it the frames of the
// events journal in order.
type Oracle struct {
	stream *policy.BusinessStream
	policy *policy.StreamTimePolicy
	reader *reader
	clock  *watermark

	assign *assigner
	watch  func(Output)

	frames      map[string]map[uint64]bool // writer → numbers had
	lost        map[string][][2]uint64     // writer → GAP ranges
	ahead       func() ([]envelope.Gap, error)
	ids         map[idKey]*idState
	windows     map[place]*window                        // tumbling, hopping, calendar
	changed     map[envelope.EventTime]map[place]*window // of these, by end, those that changed since their last revision
	sessions    map[string]*sessions                     // by key
	stirred     map[string]bool                          // keys whose sessions changed since the last mark
	alarms      alarms
	projections map[place]*projection
	sources     map[string]int // source → partitions of the policy

	now      envelope.IngestTime           // the highest ingestNow of all marks
	epoch    uint64                        // of reconcilers, the highest seen
	reopened map[string]reopening          // key → its last REOPEN
	parts    map[string][]*envelope.Reopen // key → of the one that is coming in
	refusals map[position]*refusal

	late      []Late
	conflicts []Conflict
	counts    Counts
}

// Output is one thing that an event, mark or REOPEN brings about: one pointer is set.
type Output struct {
	Row      *Row
	Late     *Late
	Conflict *Conflict
	Refused  *Refused
}

// place is a window of a key.
type place struct {
	key string
	bounds
}

// before orders places by (end, start, key).
func (p place) before(q place) bool {
	if p.bounds != q.bounds {
		return p.bounds.before(q.bounds)
	}
	return p.key < q.key
}

// Counts are numbers of events by what became of them.
type Counts struct {
	Applied, TooLate, Duplicate, Conflict, Foreign, NoTime uint64
	OnTime, LateAccepted, Refused                          uint64 // (event, window) pairs
	Revisions                                              uint64
	Reopened                                               uint64   // events that REOPENs took in or out
	IDDigest                                               *big.Int // sum over applied events mod 2^128
	GapFrames                                              uint64   // frames that an operator declared lost
}

// Late is a refused (event, window) pair.
type Late struct {
	Seq        uint64
	Index      uint32
	Source, ID string
	Key        string
	Start, End envelope.EventTime
	None       bool // no window took the event
}

// Conflict is an event that was refused because its id is taken.
type Conflict struct {
	Seq        uint64
	Index      uint32
	Source, ID string
	Key        string
}

type idKey struct{ key, source, id string }

type idState struct {
	digest    string
	time      envelope.EventTime
	asserted  bool
	withdrawn bool
	dead      bool // asserted and withdrawn: does not come back
}

type member struct {
	source, id string
	time       envelope.EventTime
	values     map[string]value
	at         position
}

// New answers an oracle, or an error when the policy is beyond what it can recompute.
func New(stream *policy.BusinessStream, p *policy.StreamTimePolicy) (*Oracle, error) {
	a, err := newAssigner(p.Window)
	if err != nil {
		return nil, err
	}
	r, err := newReader(stream, p)
	if err != nil {
		return nil, err
	}
	o := &Oracle{
		stream: stream, policy: p, reader: r, clock: newWatermark(p), assign: a,
		frames: map[string]map[uint64]bool{}, lost: map[string][][2]uint64{}, ids: map[idKey]*idState{},
		windows: map[place]*window{}, changed: map[envelope.EventTime]map[place]*window{}, sessions: map[string]*sessions{}, stirred: map[string]bool{},
		projections: map[place]*projection{}, sources: map[string]int{},
		now: math.MinInt64, reopened: map[string]reopening{}, parts: map[string][]*envelope.Reopen{}, refusals: map[position]*refusal{},
	}
	o.counts.IDDigest = new(big.Int)
	for _, s := range p.Sources {
		o.sources[s.Name] = s.Partitions
	}
	return o, nil
}

// Frame takes in the records [0, until) of the frame at journal sequence seq; a negative
// until means all of them.
func (o *Oracle) Frame(seq uint64, f *envelope.Frame, until int) error {
	if f.Writer != "" {
		had := o.frames[f.Writer]
		if had == nil {
			had = map[uint64]bool{}
			o.frames[f.Writer] = had
		}
		if had[f.Number] {
			return nil
		}
		had[f.Number] = true
	}
	if until < 0 {
		until = len(f.Records)
	}
	for i := 0; i < until; i++ {
		if err := o.record(seq, uint32(i), f); err != nil {
			return err
		}
	}
	return nil
}

func (o *Oracle) record(seq uint64, index uint32, f *envelope.Frame) error {
	switch r := &f.Records[index]; {
	case r.Event != nil:
		if err := o.event(position{seq, index}, r.Event); err != nil {
			return fmt.Errorf("event at %d/%d: %w", seq, index, err)
		}
	case r.Mark != nil:
		if err := o.mark(f, r.Mark); err != nil {
			return fmt.Errorf("mark at %d/%d: %w", seq, index, err)
		}
	case r.Gap != nil:
		o.lost[r.Gap.Writer] = append(o.lost[r.Gap.Writer], [2]uint64{r.Gap.First, r.Gap.Last})
		o.counts.GapFrames += r.Gap.Last - r.Gap.First + 1
	case r.Reopen != nil:
		if err := o.reopen(position{seq, index}, r.Reopen); err != nil {
			return fmt.Errorf("REOPEN at %d/%d: %w", seq, index, err)
		}
	default:
		return fmt.Errorf("record %d of the frame at %d is of a kind the oracle does not know", index, seq)
	}
	return nil
}

// LookAhead sets where every GAP record of the journal comes from. It is asked at most
// once, at the first mark whose frames were not all had: a GAP record behind a mark lets
// that mark pass.
func (o *Oracle) LookAhead(gaps func() ([]envelope.Gap, error)) { o.ahead = gaps }

func (o *Oracle) mark(f *envelope.Frame, m *envelope.Mark) error {
	for n := uint64(1); n <= m.Frames; n++ {
		if o.frames[m.Writer][n] || o.declaredLost(m.Writer, n) {
			continue
		}
		if o.ahead != nil {
			gaps, err := o.ahead()
			if err != nil {
				return err
			}
			for _, g := range gaps {
				o.lost[g.Writer] = append(o.lost[g.Writer], [2]uint64{g.First, g.Last})
			}
			o.ahead = nil
		}
		if !o.declaredLost(m.Writer, n) {
			return fmt.Errorf("frame %d of writer %s is missing", n, m.Writer)
		}
	}
	before := o.clock.w
	o.now = max(o.now, m.IngestNow)
	if partitions, known := o.sources[m.Source]; known && int(m.Partition) < partitions {
		for i, name := range f.Extractors {
			if name == o.policy.Extractor {
				o.clock.mark(m, m.MaxEventTime[i])
			}
		}
	}
	o.fireFixed(false)
	o.fireSessions(before, nil)
	return nil
}

func (o *Oracle) declaredLost(writer string, n uint64) bool {
	for _, r := range o.lost[writer] {
		if n >= r[0] && n <= r[1] {
			return true
		}
	}
	return false
}

// event decides about one event: foreign, duplicate, conflict, too late or applied.
func (o *Oracle) event(where position, ev *envelope.Event) error {
	if _, known := o.sources[ev.Source]; !known {
		o.counts.Foreign++
		return nil
	}
	data, err := o.reader.read(ev.Data)
	if err != nil {
		return err
	}
	if data.noTime {
		o.counts.NoTime++
		return nil
	}
	if ev.Op == envelope.Retract {
		o.retract(where, ev, data)
		return nil
	}
	id := idKey{ev.Key, ev.Source, ev.ID}
	known := o.remembered(id)
	switch {
	case known != nil && known.digest != data.digest, known != nil && known.dead:
		if known.digest == data.digest && known.asserted {
			o.counts.Duplicate++
			return nil
		}
		o.conflict(where, ev)
		return nil
	case known != nil && known.asserted:
		o.counts.Duplicate++
		return nil
	case known != nil: // its retraction came first: both are applied and change nothing
		known.asserted, known.dead = true, true
		o.applied(ev, o.assign.windows(data.time))
		return nil
	}
	o.ids[id] = &idState{digest: data.digest, time: data.time, asserted: true}
	m := member{clone(ev.Source), clone(ev.ID), data.time, data.values, where}
	takes := o.judge(where, ev, m)
	for _, b := range takes {
		o.include(clone(ev.Key), b, m, news{any: true, asserted: true, origin: ev.Origin})
	}
	if len(takes) > 0 {
		o.applied(ev, takes)
	}
	return nil
}

// judge answers the windows that may still take an event, and refuses it for the others.
// m is the member that it brings, or takes away.
func (o *Oracle) judge(where position, ev *envelope.Event, m member) (takes []bounds) {
	var late []bounds
	for _, b := range o.assign.windows(m.time) {
		if o.clock.w >= b.end.Add(int64(o.policy.AllowedLateness)) {
			late = append(late, b)
		} else {
			takes = append(takes, b)
		}
	}
	if len(takes) == 0 {
		o.counts.TooLate++
	}
	if len(late) > 0 {
		o.refusals[where] = &refusal{clone(ev.Key), m, [2]string{clone(ev.Source), clone(ev.ID)}, ev.Op == envelope.Retract, late}
	}
	for _, b := range late {
		o.counts.Refused++
		o.late = append(o.late, Late{where.seq, where.index, clone(ev.Source), clone(ev.ID), clone(ev.Key), b.start, b.end, len(takes) == 0})
		o.tell(Output{Late: &o.late[len(o.late)-1]})
	}
	return takes
}

// include takes a member into a window, or into the key's sessions.
func (o *Oracle) include(key string, b bounds, m member, n news) {
	if o.policy.Window.Kind == policy.Session {
		o.sessionsOf(key).join(m, n)
		o.stirred[key] = true
		return
	}
	o.put(key, b, m, n)
}

// exclude takes a member out again.
func (o *Oracle) exclude(key string, b bounds, m member, n news) {
	if o.policy.Window.Kind == policy.Session {
		o.sessionsOf(key).leave(m, n)
		o.stirred[key] = true
		return
	}
	o.drop(key, b, memberKey(m.source, m.id), n)
}

// retract decides about one retraction.
func (o *Oracle) retract(where position, ev *envelope.Event, data *datum) {
	own := idKey{ev.Key, ev.Source, ev.ID}
	if known := o.remembered(own); known != nil {
		if known.digest == "retract:"+ev.Withdraws+":"+data.digest {
			o.counts.Duplicate++
		} else {
			o.conflict(where, ev)
		}
		return
	}
	target := idKey{ev.Key, ev.Source, ev.Withdraws}
	known := o.remembered(target)
	if known != nil && (known.withdrawn || known.digest != data.digest) {
		o.conflict(where, ev)
		return
	}
	o.ids[own] = &idState{digest: "retract:" + ev.Withdraws + ":" + data.digest, time: data.time, asserted: true, dead: true, withdrawn: true}
	gone := member{source: clone(ev.Source), id: clone(ev.Withdraws), time: data.time}
	takes := o.judge(where, ev, gone)
	if len(takes) == 0 {
		return
	}
	o.applied(ev, takes)
	if known == nil {
		o.ids[target] = &idState{digest: data.digest, time: data.time, withdrawn: true}
		return
	}
	known.withdrawn, known.dead = true, true
	for _, b := range takes {
		o.exclude(ev.Key, b, gone, news{any: true, origin: ev.Origin})
	}
}

// remembered answers an id that is still kept: until W >= event time + ids.
func (o *Oracle) remembered(id idKey) *idState {
	s := o.ids[id]
	if s != nil && o.clock.w >= s.time.Add(int64(o.policy.RetainIDs)) {
		delete(o.ids, id)
		return nil
	}
	return s
}

func (o *Oracle) conflict(where position, ev *envelope.Event) {
	o.counts.Conflict++
	o.conflicts = append(o.conflicts, Conflict{where.seq, where.index, clone(ev.Source), clone(ev.ID), clone(ev.Key)})
	o.tell(Output{Conflict: &o.conflicts[len(o.conflicts)-1]})
}

// applied counts an event that windows took.
func (o *Oracle) applied(ev *envelope.Event, takes []bounds) {
	o.counts.Applied++
	o.counts.IDDigest = addHash(o.counts.IDDigest, ev.Source, ev.ID)
	for _, b := range takes {
		if o.clock.w < b.end {
			o.counts.OnTime++
		} else {
			o.counts.LateAccepted++
		}
	}
}

// Late answers every refused pair in journal order.
func (o *Oracle) Late() []Late { return o.late }

// Conflicts answers every conflict in journal order.
func (o *Oracle) Conflicts() []Conflict { return o.conflicts }

// Counts answers the numbers so far.
func (o *Oracle) Counts() Counts { return o.counts }

// Watermark answers W and Wdata.
func (o *Oracle) Watermark() (w, wdata envelope.EventTime) { return o.clock.w, o.clock.data }

func memberKey(source, id string) string { return fmt.Sprintf("%d:%s#%s", len(source), source, id) }

func addHash(sum *big.Int, source, id string) *big.Int {
	h := sha256.Sum256(fmt.Appendf(nil, "%d:%s|%d:%s", len(source), source, len(id), id))
	sum = new(big.Int).Add(sum, new(big.Int).SetBytes(h[:16]))
	return sum.And(sum, mask128)
}

var mask128 = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1))

func hex128(n *big.Int) string { return fmt.Sprintf("%032x", n) }

func clone(s string) string { return string([]byte(s)) }

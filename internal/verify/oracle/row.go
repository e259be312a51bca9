package oracle

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Row is what readers must see of one window: its last revision.
type Row struct {
	Key        string
	Start, End envelope.EventTime
	Revision   uint64
	Retracted  bool
	Value      map[string]string // aggregate → text as in JSON, without quotes
	Events     uint64
	IDDigest   string // 32 hex digits

	State        revision.OutputState
	Firing       revision.Firing
	Cause        string
	Origin       envelope.Origin
	Delta        map[string]string // numbers only: what changed since the last revision
	ValueChanged bool

	ProjectionID string
	ResultID     string                  // sessions; empty when retracted
	Supersedes   []revision.Supersession // by (start, end) of what they name
	SupersededBy string                  // projection that took this one's members over
}

// projection is everything ever published under the bounds of one key: its number goes
// on when bounds come back.
type projection struct {
	key string
	bounds
	revision uint64
	row      *Row              // nil before the first
	members  map[string]member // of a session that is current
}

// current tells whether readers see the projection.
func (p *projection) current() bool { return p.row != nil && !p.row.Retracted }

// why is the reason of a revision.
type why struct {
	state  revision.OutputState
	firing revision.Firing
	cause  string
	origin envelope.Origin
}

// projection answers the projection of bounds, and makes it if there was none.
func (o *Oracle) projection(key string, b bounds) *projection {
	at := place{key, b}
	p := o.projections[at]
	if p == nil {
		p = &projection{key: key, bounds: b}
		o.projections[at] = p
	}
	return p
}

// upsert publishes members as the projection's next revision.
func (o *Oracle) upsert(p *projection, members map[string]member, w why, supersedes []revision.Supersession) {
	row := o.revise(p, w)
	row.Value, row.Events, row.Supersedes = o.reader.aggregate(members), uint64(len(members)), supersedes
	sum := new(big.Int)
	for _, m := range members {
		sum = addHash(sum, m.source, m.id)
	}
	row.IDDigest = hex128(sum)
	if o.policy.Window.Kind == policy.Session {
		row.ResultID, p.members = o.resultID(p.key, members), members
	}
	o.publish(p, row)
}

// retract publishes that the projection is no more.
func (o *Oracle) retractRow(p *projection, w why, supersededBy string) {
	row := o.revise(p, w)
	p.members = nil
	row.Retracted, row.IDDigest, row.SupersededBy = true, hex128(new(big.Int)), supersededBy
	o.publish(p, row)
}

func (o *Oracle) revise(p *projection, w why) *Row {
	return &Row{
		Key: p.key, Start: p.start, End: p.end, Revision: p.revision + 1,
		State: w.state, Firing: w.firing, Cause: w.cause, Origin: w.origin,
		ProjectionID: o.projectionID(p.key, p.bounds),
	}
}

func (o *Oracle) publish(p *projection, row *Row) {
	var old map[string]string
	if p.row != nil {
		old = p.row.Value
	}
	row.Delta = o.reader.delta(old, row.Value)
	for _, a := range o.policy.Aggregates {
		before, had := old[a.Name]
		now, has := row.Value[a.Name]
		row.ValueChanged = row.ValueChanged || had != has || before != now
	}
	p.revision, p.row = row.Revision, row
	o.counts.Revisions++
	o.tell(Output{Row: row})
}

// Watch sets what is told every output, in the order of the journal.
func (o *Oracle) Watch(told func(Output)) { o.watch = told }

func (o *Oracle) tell(out Output) {
	if o.watch != nil {
		o.watch(out)
	}
}

// Rows answers what readers must see now, retracted windows included, by (end, start, key).
func (o *Oracle) Rows() []Row {
	var rows []Row
	for _, p := range o.projections {
		if p.row != nil {
			rows = append(rows, *p.row)
		}
	}
	sort.Slice(rows, func(i, j int) bool {
		a, b := bounds{rows[i].Start, rows[i].End}, bounds{rows[j].Start, rows[j].End}
		if a != b {
			return a.before(b)
		}
		return rows[i].Key < rows[j].Key
	})
	return rows
}

// delta answers now minus old of every numeric result; what is absent counts as zero.
func (r *reader) delta(old, now map[string]string) map[string]string {
	out := map[string]string{}
	for _, a := range r.policy.Aggregates {
		digits, numeric := r.digits(a)
		if numeric {
			out[a.Name] = decimal(new(big.Int).Sub(undecimal(now[a.Name], digits), undecimal(old[a.Name], digits)), digits)
		}
	}
	return out
}

// digits answers how many decimals a result has, and whether it is a number at all.
func (r *reader) digits(a policy.AggregateSpec) (digits int, numeric bool) {
	spec := r.specs[a.Arg]
	if spec.Type == policy.Decimal {
		digits = spec.Scale
	}
	switch a.Func {
	case "count", "distinct":
		return 0, true
	case "avg":
		return digits + avgDigits, true
	}
	return digits, spec.Type != policy.String
}

// undecimal reads what decimal wrote; nothing is zero.
func undecimal(text string, digits int) *big.Int {
	n, ok := new(big.Rat).SetString(text)
	if !ok {
		return new(big.Int)
	}
	return n.Mul(n, new(big.Rat).SetInt(pow10(digits))).Num()
}

// tagged answers H of the design's identities.
func tagged(tag string, fields ...string) string {
	for _, f := range fields {
		tag += fmt.Sprintf("|%d:%s", len(f), f)
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(tag)))
}

func (o *Oracle) projectionID(key string, b bounds) string {
	logical := tagged("logicalWindow.v1", o.stream.Name, key, strconv.FormatInt(int64(b.start), 10), strconv.FormatInt(int64(b.end), 10))
	return tagged("projection.v1", logical, fmt.Sprintf("%s@%d", o.policy.Job, o.policy.Generation))
}

// resultID answers the id of a session's result: one for one set of members.
func (o *Oracle) resultID(key string, members map[string]member) string {
	var names []string
	for _, m := range members {
		name := m.id
		if len(o.policy.Sources) > 1 {
			name = m.source + "#" + m.id
		}
		names = append(names, name)
	}
	slices.Sort(names)
	parts := []string{key, o.policy.Window.Rule}
	for _, name := range slices.Compact(names) {
		parts = append(parts, fmt.Sprintf("%d:%s", utf8.RuneCountInString(name), name))
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(parts, "|"))))
}

package projector

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"

	"github.com/tidemark-mesh/tidemark/internal/httpx"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Bounds of one reply. A reply that would be larger ends with a cursor.
const (
	replyBytes   = 512 << 10
	limitDefault = 1000
	limitMost    = 10000
)

// Codes of errors that queries answer.
const (
	codeBadRequest = "bad-request"
	codeNotFound   = "not-found"
	codeStarting   = "starting"
	codeInternal   = "internal"
)

// request is a query as it comes in over NATS; over HTTP its members are query parameters.
type request struct {
	Key        string `json:"key"`        // "" = every key
	From       string `json:"from"`       // RFC 3339; windows that start at or after it, sessions that end after it
	To         string `json:"to"`         // RFC 3339; windows and sessions that start before it
	Generation string `json:"generation"` // job@n; default: the canonical one of every job
	Job        string `json:"job"`        // only this job
	History    bool   `json:"history"`    // the ledger of revisions, not the current rows
	Limit      int    `json:"limit"`      // rows, at most limitMost
	Cursor     string `json:"cursor"`     // of the reply before
}

// reply is a page of rows.
type reply struct {
	Stream   string            `json:"stream"`
	Aliases  []aliasInfo       `json:"aliases"` // under which the reply was made
	Rows     []json.RawMessage `json:"rows"`
	Cursor   string            `json:"cursor,omitempty"`   // there is more: ask again with it
	Problems []string          `json:"problems,omitempty"` // halted partitions whose rows may be old; a session that changed between two pages
}

type aliasInfo struct {
	Job       string `json:"job"`
	Canonical int    `json:"canonical"`
	Epoch     uint64 `json:"epoch"`
}

// cursor is where a page ended. It names the generations of the first page, so that all
// pages of one listing speak of the same ones even if an alias moves between them.
type cursor struct {
	Targets []string `json:"t"`           // policy generations
	At      int      `json:"i"`           // index into Targets
	RowKey  []byte   `json:"k,omitempty"` // last row given out
	Seq     uint64   `json:"s,omitempty"` // history: next sequence
}

// query is a checked request.
type query struct {
	key     string
	from    envelope.EventTime
	to      envelope.EventTime
	limit   int
	history bool
	targets []*job
	cursor  cursor
	aliases []aliasInfo
}

func badRequest(format string, args ...any) error {
	return httpx.Error{Code: codeBadRequest, Message: fmt.Sprintf(format, args...)}
}

// plan checks a request and settles which generations answer it, all under one look at
// the aliases.
func (st *stream) plan(r request) (*query, error) {
	q := &query{key: r.Key, from: envelope.MinEventTime, to: envelope.MaxEventTime, limit: r.Limit, history: r.History}
	var err error
	if r.From != "" {
		if q.from, err = envelope.ParseEventTime(r.From); err != nil {
			return nil, badRequest("from: %v", err)
		}
	}
	if r.To != "" {
		if q.to, err = envelope.ParseEventTime(r.To); err != nil {
			return nil, badRequest("to: %v", err)
		}
	}
	switch {
	case q.limit == 0:
		q.limit = limitDefault
	case q.limit < 0 || q.limit > limitMost:
		return nil, badRequest("limit %d is not between 1 and %d", q.limit, limitMost)
	}
	aliases := st.epoch()
	q.aliases = make([]aliasInfo, len(aliases))
	for i, a := range aliases {
		q.aliases[i] = aliasInfo{Job: a.Job, Canonical: a.Canonical, Epoch: a.Epoch}
	}
	if r.Cursor != "" {
		return q, st.resume(q, r.Cursor)
	}
	if err := st.choose(q, r, aliases); err != nil {
		return nil, err
	}
	for _, j := range q.targets {
		q.cursor.Targets = append(q.cursor.Targets, j.policy.PolicyGeneration())
	}
	return q, nil
}

// choose settles the generations of a first page.
func (st *stream) choose(q *query, r request, aliases []revision.Alias) error {
	if r.Generation != "" {
		name, generation, err := policy.ParsePolicyGeneration(r.Generation)
		if err != nil {
			return badRequest("generation: %v", err)
		}
		if r.Job != "" && r.Job != name {
			return badRequest("generation %s is none of job %s", r.Generation, r.Job)
		}
		j := st.job(name, generation)
		if j == nil {
			return httpx.Error{
				Code: codeNotFound, Message: fmt.Sprintf("stream %s has no policy generation %s", st.doc.Name, r.Generation),
				Hint: "see the applied documents with `tidemark get`",
			}
		}
		q.targets = []*job{j}
		return nil
	}
	for i := range aliases {
		a := &aliases[i]
		if r.Job != "" && a.Job != r.Job {
			continue
		}
		if j := st.job(a.Job, a.Canonical); j != nil {
			q.targets = append(q.targets, j)
		}
	}
	if r.Job != "" && len(q.targets) == 0 {
		return httpx.Error{
			Code: codeNotFound, Message: fmt.Sprintf("stream %s has no canonical generation of a job %s", st.doc.Name, r.Job),
			Hint: "apply a policy of that job, or name a generation",
		}
	}
	return nil
}

// resume goes on with the generations of the first page.
func (st *stream) resume(q *query, text string) error {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &q.cursor)
	}
	if err != nil || q.cursor.At < 0 || q.cursor.At > len(q.cursor.Targets) {
		return badRequest("the cursor is none that a reply carried")
	}
	for _, name := range q.cursor.Targets {
		jobName, generation, err := policy.ParsePolicyGeneration(name)
		if err != nil {
			return badRequest("the cursor is none that a reply carried")
		}
		j := st.job(jobName, generation)
		if j == nil {
			return badRequest("the cursor names %s, which stream %s does not have", name, st.doc.Name)
		}
		q.targets = append(q.targets, j)
	}
	return nil
}

func (c cursor) encode() string {
	raw, err := json.Marshal(c)
	if err != nil { // no member can fail
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// partitionOf answers the key partition that ingest puts a key into.
func partitionOf(key string, partitions int) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % uint32(partitions))
}

// covers tells whether a window is in the range of the query: it starts there or, for
// sessions, which have no bounds that one could know before, overlaps it.
func (q *query) covers(j *job, w revision.Window) bool {
	if j.policy.Window.Kind == policy.Session {
		return w.End > q.from && w.Start < q.to
	}
	return w.Start >= q.from && w.Start < q.to
}

// units answers the partitions that a query concerns.
func (q *query) units(j *job) []*unit {
	if q.key == "" {
		return j.units
	}
	pp := partitionOf(q.key, len(j.units))
	return j.units[pp : pp+1]
}

// page collects the rows of a reply within its bounds.
type page struct {
	rows  []json.RawMessage
	bytes int
	limit int
	torn  bool // a session that grew over the end of the page before is left out
}

// add takes a row in, unless the page is full.
func (p *page) add(row json.RawMessage) bool {
	if len(p.rows) >= p.limit || len(p.rows) > 0 && p.bytes+len(row) > replyBytes {
		return false
	}
	p.rows = append(p.rows, row)
	p.bytes += len(row) + 1
	return true
}

// answer wraps a page; more tells that cursor goes on.
func (st *stream) answer(q *query, p *page, next *cursor) *reply {
	r := &reply{Stream: st.doc.Name, Aliases: q.aliases, Rows: p.rows}
	if r.Rows == nil {
		r.Rows = []json.RawMessage{}
	}
	if next != nil {
		r.Cursor = next.encode()
	}
	if p.torn {
		r.Problems = append(r.Problems, "a session grew over the end of the page before and is left out here: list again from the first page")
	}
	for _, j := range q.targets {
		for _, u := range q.units(j) {
			if problem := u.halted(); problem != "" {
				r.Problems = append(r.Problems, problem)
			}
		}
	}
	return r
}

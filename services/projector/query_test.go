package projector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/httpx"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// queried is a stream with nodes for every partition of its generations and a windows
// journal behind each.
type queried struct {
	t       *testing.T
	conn    *natsio.Conn
	st      *stream
	svc     *Service
	authors map[int][]*author // by generation
	nodes   []*node
}

func newQueried(t *testing.T, partitions, generations int) *queried {
	t.Helper()
	return newQueriedOf(t, partitions, generations, newNode)
}

// newQueriedOf is newQueried with nodes of another policy.
func newQueriedOf(t *testing.T, partitions, generations int, node func(testing.TB, *natsio.Conn, partition, string) *node) *queried {
	t.Helper()
	conn := connect(t)
	ctx := testContext(t)
	first := newPartition(t, conn, partitions)
	q := &queried{
		t: t, conn: conn, authors: map[int][]*author{},
		st:  newStream(&policy.BusinessStream{Name: first.stream, Partitions: partitions}, "test"),
		svc: &Service{cfg: Config{Conn: conn}},
	}
	dir := t.TempDir()
	for generation := 1; generation <= generations; generation++ {
		must(t, natsio.ProvisionPolicy(ctx, conn.JS, first.stream, first.job, generation, partitions, 1))
		j := &job{}
		for pp := range partitions {
			p := partition{stream: first.stream, job: first.job, generation: generation, number: pp}
			n := node(t, conn, p, dir)
			stop := n.own(ctx)
			t.Cleanup(func() { stop(); n.closeView() })
			j.policy, j.units = n.policy, append(j.units, n.unit)
			q.nodes = append(q.nodes, n)
			q.authors[generation] = append(q.authors[generation], newAuthor(t, conn, p, staticOf(p)))
		}
		q.st.add(j)
	}
	reading, stop := context.WithCancel(ctx)
	t.Cleanup(stop)
	go q.st.followAliases(reading, conn.JS, clock.System(), zerolog.Nop())
	return q
}

// alias makes a generation canonical and waits until queries know.
func (q *queried) alias(generation int, epoch uint64) {
	q.t.Helper()
	a := revision.Alias{Job: "hourly", Canonical: generation, Epoch: epoch}
	_, err := q.conn.JS.Publish(testContext(q.t), subject.Alias(q.st.doc.Name, "hourly"), a.AppendJSON(nil))
	must(q.t, err)
	eventually(q.t, func() string {
		for _, have := range q.st.epoch() {
			if have.Epoch == epoch {
				return ""
			}
		}
		return "the alias is not followed"
	})
}

// write has orders of (key, hour) pairs accepted in one generation, with watermark hours
// after the base.
func (q *queried) write(generation, watermark int, orders map[string]int) {
	q.t.Helper()
	records := map[int][][]byte{}
	authors := q.authors[generation]
	for _, spec := range slices.Sorted(maps.Keys(orders)) { // the ledger keeps the order of proposals
		n := orders[spec]
		key, at, _ := strings.Cut(spec, "@")
		var h int
		fmt.Sscan(at, &h)
		pp := partitionOf(key, len(authors))
		records[pp] = append(records[pp], authors[pp].propose(key, base+hour*hourUnit(h), n))
	}
	for pp, a := range authors {
		seq := a.write(base+hour*hourUnit(watermark), records[pp]...)
		for _, n := range q.nodes {
			if n.part == a.part {
				n.awaitWindows(seq)
			}
		}
	}
}

type got struct {
	rows   []row
	cursor string
	reply  *reply
}

// ask answers one page as "key@hour=orders/revision/state" words.
func (q *queried) ask(r request) (words []string, page got) {
	q.t.Helper()
	reply, err := q.svc.answer(testContext(q.t), q.st, r)
	must(q.t, err)
	page = got{cursor: reply.Cursor, reply: reply}
	for _, raw := range reply.Rows {
		var w row
		must(q.t, json.Unmarshal(raw, &w))
		var value struct{ Orders int }
		must(q.t, json.Unmarshal(w.Value, &value))
		page.rows = append(page.rows, w)
		words = append(words, fmt.Sprintf("%s@%d=%d/%d/%s", w.Key, (w.Start-base)/hour, value.Orders, w.Revision, w.State))
	}
	return words, page
}

func (q *queried) expect(r request, want ...string) got {
	q.t.Helper()
	words, page := q.ask(r)
	if strings.Join(words, "\n") != strings.Join(want, "\n") {
		q.t.Fatalf("%+v answers\n%s\nwant\n%s", r, strings.Join(words, "\n"), strings.Join(want, "\n"))
	}
	return page
}

func TestQueries(t *testing.T) {
	t.Parallel()
	q := newQueried(t, 3, 1)
	q.alias(1, 1)
	q.write(1, 2, map[string]int{"eu-west@0": 10, "eu-west@1": 5, "Zürich 2.x@0": 3, "us@1": 7})
	q.write(1, 2, map[string]int{"eu-west@0": 9})

	page := q.expect(request{}, "Zürich 2.x@0=3/1/ON_TIME_EMITTED", "eu-west@0=9/2/CORRECTED",
		"eu-west@1=5/1/ON_TIME_EMITTED", "us@1=7/1/ON_TIME_EMITTED")
	if a := page.reply.Aliases; len(a) != 1 || a[0] != (aliasInfo{Job: "hourly", Canonical: 1, Epoch: 1}) {
		t.Errorf("aliases: %+v", a)
	}
	if r := page.rows[1]; r.PolicyGeneration != "hourly@1" || r.Firing != revision.FiringLate || r.Provenance != provenanceData || !r.ValueChanged {
		t.Errorf("row: %+v", r)
	}
	if _, err := revision.ParseJSON(page.rows[1].Record); err != nil {
		t.Errorf("record: %v", err)
	}
	q.expect(request{Key: "eu-west"}, "eu-west@0=9/2/CORRECTED", "eu-west@1=5/1/ON_TIME_EMITTED")
	q.expect(request{Key: "eu-west", From: "2026-11-30T11:00:00Z"}, "eu-west@1=5/1/ON_TIME_EMITTED")
	q.expect(request{To: "2026-11-30T12:00:00+01:00"}, "Zürich 2.x@0=3/1/ON_TIME_EMITTED", "eu-west@0=9/2/CORRECTED")
	q.expect(request{Key: "nobody"})
	q.expect(request{Key: "eu-west", History: true}, "eu-west@0=10/1/ON_TIME_EMITTED", "eu-west@1=5/1/ON_TIME_EMITTED", "eu-west@0=9/2/CORRECTED")

	// What a committed watermark has passed by the allowed lateness is final.
	q.write(1, 26, nil)
	q.expect(request{Key: "eu-west"}, "eu-west@0=9/2/FINALIZED", "eu-west@1=5/1/FINALIZED")
}

// A retracted window is no current row; the ledger keeps it.
func TestRetractedWindow(t *testing.T) {
	t.Parallel()
	q := newQueried(t, 1, 1)
	q.alias(1, 1)
	q.write(1, 2, map[string]int{"eu@0": 10})
	a := q.authors[1][0]
	q.nodes[0].awaitWindows(a.write(base+2*hour, a.record(a.revision("eu", base, 0, func(r *revision.Revision) { r.Op, r.Value = revision.Retract, nil }))))
	q.expect(request{})
	if words, _ := q.ask(request{History: true}); len(words) != 2 {
		t.Fatalf("ledger: %v", words)
	}
}

func TestQueriesFollowTheAlias(t *testing.T) {
	t.Parallel()
	q := newQueried(t, 2, 2)
	q.write(1, 2, map[string]int{"eu@0": 10})
	q.write(2, 2, map[string]int{"eu@0": 11, "us@0": 1})
	q.expect(request{}) // nothing is canonical yet
	q.alias(1, 1)
	q.expect(request{}, "eu@0=10/1/ON_TIME_EMITTED")
	q.expect(request{Generation: "hourly@2", Limit: 1}, "eu@0=11/1/ON_TIME_EMITTED")
	_, first := q.ask(request{Generation: "hourly@1", Limit: 1})
	q.alias(2, 2)
	q.expect(request{Job: "hourly"}, "eu@0=11/1/ON_TIME_EMITTED", "us@0=1/1/ON_TIME_EMITTED")
	if first.cursor != "" {
		t.Errorf("a last page carries a cursor")
	}
}

// Pages join without a gap or a repetition, whatever their size, within the byte bound.
func TestPaging(t *testing.T) {
	t.Parallel()
	q := newQueried(t, 4, 1)
	q.alias(1, 1)
	orders := map[string]int{}
	for i := range 1500 {
		orders[fmt.Sprintf("key-%04d@%d", i%500, i/500)] = i
	}
	q.write(1, 5, orders)
	for _, r := range []request{{}, {Limit: 7, Key: "key-0001"}, {Limit: 1}, {Limit: 499}, {Limit: 10000}, {Limit: 10000, History: true}, {Limit: 333, History: true}} {
		want := 1500
		if r.Key != "" {
			want = 3
		}
		if r.Limit == 1 {
			r.From, want = "2026-11-30T12:00:00Z", 500
		}
		seen := map[string]bool{}
		for pages := 0; ; pages++ {
			words, page := q.ask(r)
			for _, w := range words {
				if seen[w] {
					t.Fatalf("%s comes twice", w)
				}
				seen[w] = true
			}
			raw, err := json.Marshal(page.reply)
			must(t, err)
			if len(raw) > replyBytes+64<<10 {
				t.Fatalf("a reply of %d bytes", len(raw))
			}
			if r.Cursor = page.cursor; r.Cursor == "" {
				break
			}
		}
		if len(seen) != want {
			t.Errorf("%+v: %d rows, want %d", r, len(seen), want)
		}
	}
}

func TestRefusedQueries(t *testing.T) {
	t.Parallel()
	q := newQueried(t, 1, 1)
	q.alias(1, 1)
	cases := []struct {
		r    request
		code string
	}{
		{request{From: "yesterday"}, codeBadRequest},
		{request{To: "10:00"}, codeBadRequest},
		{request{Limit: -1}, codeBadRequest},
		{request{Cursor: "x"}, codeBadRequest},
		{request{Generation: "hourly"}, codeBadRequest},
		{request{Generation: "hourly@9"}, codeNotFound},
		{request{Generation: "hourly@1", Job: "daily"}, codeBadRequest},
		{request{Job: "daily"}, codeNotFound},
	}
	for _, c := range cases {
		_, err := q.svc.answer(testContext(t), q.st, c.r)
		var e httpx.Error
		if !errors.As(err, &e) || e.Code != c.code {
			t.Errorf("%+v answers %v, want %s", c.r, err, c.code)
		}
	}
}

func TestProvenance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		all      policy.AllIdle
		w, wdata int
		want     string
	}{
		{policy.Hold, 2, 2, provenanceData},
		{policy.Hold, 2, 1, provenanceExcluded},
		{policy.Advance, 2, 1, provenanceAdvanced},
		{policy.Advance, 3, 2, provenanceData},
	} {
		p := &policy.StreamTimePolicy{AllIdle: c.all}
		if got := provenance(p, base+hour*hourUnit(c.w), base+hour*hourUnit(c.wdata), base+2*hour); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestParametersAreRefusedNotGuessed(t *testing.T) {
	for query, want := range map[string]string{
		"kee=a":           "no parameter",
		"key=a&key=b":     "2 times",
		"key=%zz":         "cannot be read",
		"limit=many":      "no number",
		"history=perhaps": "neither 1 nor 0",
	} {
		_, err := parseParams(httptest.NewRequest("GET", "/v1/streams/s/windows?"+query, nil))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", query, err, want)
		}
	}
	req, err := parseParams(httptest.NewRequest("GET", "/v1/streams/s/windows?key=a%26b&history=1", nil))
	if err != nil || req.Key != "a&b" || !req.History {
		t.Errorf("%+v %v", req, err)
	}
}

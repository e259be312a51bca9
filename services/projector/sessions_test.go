package projector

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// have has revisions of one key accepted, with the watermark w and openFrom.
func (q *queried) have(w, openFrom envelope.EventTime, list ...*revision.Revision) {
	q.t.Helper()
	byPartition := map[int][][]byte{}
	authors := q.authors[1]
	for _, r := range list {
		pp := partitionOf(r.Key, len(authors))
		byPartition[pp] = append(byPartition[pp], authors[pp].record(r))
	}
	for pp, records := range byPartition {
		authors[pp].commit.OpenFrom = openFrom
		q.nodes[pp].awaitWindows(authors[pp].write(w, records...))
	}
}

func (q *queried) author(key string) *author {
	return q.authors[1][partitionOf(key, len(q.authors[1]))]
}

// spans answers a page as "key@from-to/revision/op/state" words, in minutes after base.
func (q *queried) spans(r request) (string, got) {
	q.t.Helper()
	reply, err := q.svc.answer(testContext(q.t), q.st, r)
	must(q.t, err)
	page := got{cursor: reply.Cursor, reply: reply}
	var words []string
	for _, raw := range reply.Rows {
		var w row
		must(q.t, json.Unmarshal(raw, &w))
		page.rows = append(page.rows, w)
		words = append(words, fmt.Sprintf("%s@%d-%d/%d/%s/%s", w.Key, (w.Start-base)/minute, (w.End-base)/minute, w.Revision, w.Op, w.State))
	}
	return strings.Join(words, " "), page
}

func (q *queried) sees(r request, want string) got {
	q.t.Helper()
	words, page := q.spans(r)
	if words != want {
		q.t.Fatalf("%+v answers\n%s\nwant\n%s", r, words, want)
	}
	return page
}

func clockOf(m int) string { return (base + envelope.EventTime(m)*minute).String() }

// Sessions are asked for by the range that they overlap; what was replaced is no current
// row and stays in the ledger, with both ends of the supersession.
func TestSessionQueries(t *testing.T) {
	t.Parallel()
	q := newQueriedOf(t, 3, 1, newSessionNode)
	q.alias(1, 1)
	a := q.author("k")
	q.have(base+hour, base, a.next("k", between(0, 11), 1, nil), a.next("k", between(20, 31), 2, nil), a.next("k", between(50, 70), 2, nil))
	b := q.author("kk")
	q.have(base+hour, base, b.next("kk", between(5, 16), 1, nil), b.next("kk", between(30, 41), 1, nil))

	q.sees(request{}, "k@0-11/1/UPSERT/ON_TIME_EMITTED k@20-31/1/UPSERT/ON_TIME_EMITTED k@50-70/1/UPSERT/ON_TIME_EMITTED kk@5-16/1/UPSERT/ON_TIME_EMITTED kk@30-41/1/UPSERT/ON_TIME_EMITTED")
	q.sees(request{Key: "k", From: clockOf(11), To: clockOf(50)}, "k@20-31/1/UPSERT/ON_TIME_EMITTED")
	q.sees(request{Key: "k", From: clockOf(10), To: clockOf(51)}, "k@0-11/1/UPSERT/ON_TIME_EMITTED k@20-31/1/UPSERT/ON_TIME_EMITTED k@50-70/1/UPSERT/ON_TIME_EMITTED")
	q.sees(request{From: clockOf(15), To: clockOf(21)}, "k@20-31/1/UPSERT/ON_TIME_EMITTED kk@5-16/1/UPSERT/ON_TIME_EMITTED")
	q.sees(request{Key: "kkk"}, "")

	q.have(base+2*hour, base+hour, a.supersede("k", []revision.Window{between(0, 11), between(20, 31)}, between(0, 31), 4)...)
	page := q.sees(request{Key: "k"}, "k@0-31/1/UPSERT/ON_TIME_EMITTED k@50-70/1/UPSERT/ON_TIME_EMITTED")
	merged := page.rows[0]
	if len(merged.Supersedes) != 2 || merged.Supersedes[1].Revision != 2 || merged.SupersededBy != "" {
		t.Errorf("the merged row replaces %+v", merged.Supersedes)
	}
	page = q.sees(request{Key: "k", To: clockOf(15), History: true}, "k@0-11/1/UPSERT/ON_TIME_EMITTED k@0-11/2/RETRACT/CORRECTED k@0-31/1/UPSERT/ON_TIME_EMITTED")
	if old := page.rows[1]; old.SupersededBy != merged.ProjectionID || old.ProjectionID != merged.Supersedes[0].ProjectionID {
		t.Errorf("the ledger says of the old row: %+v", old)
	}
	q.sees(request{Key: "k", From: clockOf(31), To: clockOf(50), History: true}, "")
}

// A session is final when W has passed its end by lateness and gap and no unfired
// session of its partition begins before its end.
func TestSessionsBecomeFinal(t *testing.T) {
	t.Parallel()
	q := newQueriedOf(t, 1, 1, newSessionNode)
	q.alias(1, 1)
	a := q.author("k")
	end := between(0, 20).End
	final := end + 24*hour + 11*minute
	q.have(base+hour, base, a.next("k", between(0, 20), 1, nil))
	for _, c := range []struct {
		w, open envelope.EventTime
		state   revision.OutputState
	}{
		{final - 1, envelope.MaxEventTime, revision.OnTimeEmitted},
		{final, end - 1, revision.OnTimeEmitted},
		{final, end, revision.Finalized},
		{final + 1, envelope.MaxEventTime, revision.Finalized},
	} {
		a.commit.OpenFrom = c.open
		q.nodes[0].awaitWindows(a.write(c.w))
		q.sees(request{}, "k@0-20/1/UPSERT/"+string(c.state))
	}
}

// Retracted rows leave the rows of the file; what the next revision of their bounds must
// follow stays.
func TestRetractedSessionsStandApart(t *testing.T) {
	t.Parallel()
	q := newQueriedOf(t, 1, 1, newSessionNode)
	q.alias(1, 1)
	a, v := q.author("k"), q.nodes[0].opened()
	grown := between(0, 11)
	q.have(base, base, a.next("k", grown, 1, nil))
	for to := 12; to < 40; to++ {
		old := grown
		grown = between(0, to)
		q.have(base, base, a.supersede("k", []revision.Window{old}, grown, to)...)
		if to%10 == 0 {
			v.flush()
		}
	}
	v.flush()
	rows := 0
	_, err := v.scan(nil, nil, func(_, _ []byte) ([]byte, bool, error) { rows++; return nil, true, nil })
	must(t, err)
	if rows != 1 {
		t.Errorf("the view walks over %d rows of one current session", rows)
	}
	back := a.next("k", between(0, 20), 3, nil)
	if back.Revision != 3 {
		t.Fatalf("the author proposes revision %d", back.Revision)
	}
	q.have(base, base, a.supersede("k", []revision.Window{grown}, between(0, 20), 3)...)
	q.sees(request{}, "k@0-20/3/UPSERT/CORRECTED")
	v.flush()
	q.sees(request{}, "k@0-20/3/UPSERT/CORRECTED")
}

// A page goes on behind the last session of the page before; one that grew over that end
// meanwhile is not shown beside what it replaced, and the reader is told.
func TestASessionThatGrowsBetweenTwoPages(t *testing.T) {
	t.Parallel()
	q := newQueriedOf(t, 1, 1, newSessionNode)
	q.alias(1, 1)
	a := q.author("k")
	q.have(base, base, a.next("k", between(0, 11), 1, nil), a.next("k", between(20, 31), 1, nil), a.next("k", between(50, 61), 1, nil))
	first := q.sees(request{Limit: 1}, "k@0-11/1/UPSERT/ON_TIME_EMITTED")
	q.have(base, base, a.supersede("k", []revision.Window{between(0, 11), between(20, 31)}, between(0, 31), 3)...)
	second := q.sees(request{Cursor: first.cursor}, "k@50-61/1/UPSERT/ON_TIME_EMITTED")
	if len(second.reply.Problems) != 1 || !strings.Contains(second.reply.Problems[0], "list again") {
		t.Errorf("problems: %v", second.reply.Problems)
	}
	if again := q.sees(request{}, "k@0-31/1/UPSERT/ON_TIME_EMITTED k@50-61/1/UPSERT/ON_TIME_EMITTED"); again.reply.Problems != nil {
		t.Errorf("problems: %v", again.reply.Problems)
	}
}

// However many sessions a key has, a page of it is of one moment, while sessions merge
// and part again under the reader.
func TestAPageIsOfOneMoment(t *testing.T) {
	t.Parallel()
	const sessions = 3 * laneRows
	q := newQueriedOf(t, 1, 1, newSessionNode)
	q.alias(1, 1)
	a := q.author("k")
	at := neighbours(sessions)
	var list []*revision.Revision
	for _, w := range at {
		list = append(list, a.next("k", w, 1, nil))
	}
	list = append(list, a.next("a", at[0], 1, nil), a.next("z", at[0], 1, nil))
	q.have(base, base, list...)

	ctx, stop := context.WithCancel(testContext(t))
	var readers sync.WaitGroup
	for _, r := range []request{{Key: "k"}, {}} {
		readers.Go(func() {
			for looks := 0; ctx.Err() == nil || looks == 0; looks++ {
				reply, err := q.svc.answer(context.Background(), q.st, r)
				if err != nil {
					t.Error(err)
					return
				}
				if problem := wholeKey(reply.Rows, at[0].Start, at[sessions-1].End); problem != "" {
					t.Errorf("%+v: %s", r, problem)
					return
				}
			}
		})
	}
	for i := range 60 {
		place := (i * 37) % (sessions - 1)
		two := at[place : place+2]
		merged := revision.Window{Start: two[0].Start, End: two[1].End}
		q.have(base, base, a.supersede("k", two, merged, 2)...)
		apart := a.records(a.supersede("k", []revision.Window{merged}, two[0], 1)...)
		apart = append(apart, a.record(a.next("k", two[1], 1, nil)))
		q.nodes[0].awaitWindows(a.write(base, apart...))
	}
	stop()
	readers.Wait()
}

// wholeKey answers what is wrong with a page that holds all sessions of key k: they are
// as long as a minute or, merged, three, and two minutes apart.
func wholeKey(rows []json.RawMessage, from, to envelope.EventTime) string {
	next := from
	for _, raw := range rows {
		var w row
		if err := json.Unmarshal(raw, &w); err != nil {
			return err.Error()
		}
		if w.Key != "k" {
			continue
		}
		if w.Start != next {
			return fmt.Sprintf("a session from %d to %d follows where one that begins at %d must", (w.Start-base)/minute, (w.End-base)/minute, (next-base)/minute)
		}
		next = w.End + minute
	}
	if next != to+minute {
		return fmt.Sprintf("the sessions end at %d", (next-base)/minute)
	}
	return ""
}

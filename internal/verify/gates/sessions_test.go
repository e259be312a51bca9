package gates

import (
	"errors"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/verify/oracle"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// sessionWorld has two sessions that a late event makes one, one that stands alone, and
// one that is open.
func sessionWorld(t *testing.T) *unit {
	t.Helper()
	_, p := documents()
	p.Window = policy.WindowSpec{Kind: policy.Session, Gap: 2 * policy.Minute, Rule: "gap-2", Zone: "UTC"}
	p.AllowedLateness = policy.Hour
	return worldOf(t, p,
		envelope.Record{Event: event("1", 10*minute, 5)},
		envelope.Record{Event: event("2", 13*minute, 7)},
		envelope.Record{Event: event("3", 20*minute, 1)},
		envelope.Record{Mark: mark(30 * minute)},
		envelope.Record{Event: event("4", 11*minute+minute/2, 9)}, // the bridge
		envelope.Record{Mark: mark(31 * minute)},
		envelope.Record{Event: event("5", 32*minute, 2)},
	)
}

var (
	left, right = rowKey{"a", 10 * minute, 12 * minute}, rowKey{"a", 13 * minute, 15 * minute}
	bridged     = rowKey{"a", 10 * minute, 15 * minute}
	alone       = rowKey{"a", 20 * minute, 22 * minute}
)

func TestSessionsPassEveryGate(t *testing.T) {
	u := sessionWorld(t)
	if failed := judge(u); failed != nil {
		t.Fatalf("failed: %v", failed)
	}
	rows := u.accepted.rows
	if len(rows) != 4 || rows[left].Op != revision.Retract || rows[right].SupersededBy != rows[bridged].ProjectionID || len(u.accepted.sessions["a"]) != 2 {
		t.Fatalf("rows: %v, sessions: %v", rows, u.accepted.sessions)
	}
}

func TestGatesOfSessionsFailOnWhatTheyAreFor(t *testing.T) {
	const groups, members, refused = "sessions replaced in one batch", "events of sessions", "answers to REOPENs"
	for name, c := range map[string]struct {
		damage func(*unit)
		gate   string
	}{
		"a session too few":       {func(u *unit) { u.accepted.sessions["a"] = u.accepted.sessions["a"][:1] }, members},
		"a member too many":       {func(u *unit) { u.accepted.rows[alone].Inputs.Events++ }, members},
		"another member":          {func(u *unit) { u.accepted.rows[alone].Inputs.IDDigest[0]++ }, members},
		"an answer that is wrong": {func(u *unit) { u.proposed.refused = []string{"key"} }, refused},
		"another result id":       {func(u *unit) { u.accepted.rows[bridged].ResultID = "" }, "results equal the oracle"},
		"another successor":       {func(u *unit) { u.accepted.rows[left].SupersededBy = "" }, "results equal the oracle"},
		"old beside new": {func(u *unit) {
			again := *u.accepted.rows[left]
			again.Op, again.SupersededBy = revision.Upsert, ""
			u.accepted.takeGroups([]*revision.Revision{&again}, 9)
		}, groups},
		"a successor in another batch": {func(u *unit) { u.accepted.takeGroups([]*revision.Revision{u.accepted.rows[left]}, 9) }, groups},
		"a retraction too few": {func(u *unit) {
			u.accepted.takeGroups([]*revision.Revision{u.accepted.rows[left], u.accepted.rows[bridged]}, 9)
		}, groups},
	} {
		t.Run(name, func(t *testing.T) {
			u := sessionWorld(t)
			c.damage(u)
			if failed := judge(u); !strings.Contains(strings.Join(failed, "; "), c.gate) {
				t.Errorf("gates that failed: %v, want %q", failed, c.gate)
			}
		})
	}
}

// A policy that the oracle cannot recompute is refused with its reason.
func TestPoliciesBeyondTheOracleAreRefused(t *testing.T) {
	bs, p := documents()
	p.Window.Kind = "lunar"
	_, cause := oracle.New(bs, p)
	err := beyond(cause)
	if cause == nil || !errors.Is(err, ErrBeyondOracle) || !strings.Contains(err.Error(), cause.Error()) || !strings.Contains(err.Error(), "--generation") {
		t.Errorf("error: %v", err)
	}
}

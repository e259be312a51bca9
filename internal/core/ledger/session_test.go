package ledger_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

func span(start, end int64) revision.Window {
	return revision.Window{Start: envelope.EventTime(start), End: envelope.EventTime(end)}
}

// session answers an effect n of a session that covers w.
func session(n byte, s effect.State, w revision.Window, sentAt effect.Time) *effect.Record {
	r := &effect.Record{
		Key: effect.EffectKey{n}, Identity: rewardOf(), State: s, Outcome: s.Outcome(), Covered: &w, FirstPossibleSendAt: sentAt,
	}
	if sentAt > 0 {
		r.Attempts = []effect.Attempt{{N: 1}}
	}
	return r
}

func keys(ns ...byte) []effect.EffectKey {
	var list []effect.EffectKey
	for _, n := range ns {
		list = append(list, effect.EffectKey{n})
	}
	return list
}

func TestWhichEffectASessionIs(t *testing.T) {
	a, b := span(100, 200), span(250, 300)
	for _, c := range []struct {
		name      string
		records   []*effect.Record
		w         revision.Window
		mint      bool
		want      byte
		cover     revision.Window
		merged    []effect.EffectKey
		unsettled []effect.EffectKey
	}{
		{name: "none", w: a, mint: true, cover: a},
		{name: "one beside it", records: []*effect.Record{session(1, effect.Acked, span(200, 220), 1)}, w: a, mint: true, cover: a},
		{name: "one before it", records: []*effect.Record{session(1, effect.Acked, span(50, 100), 1)}, w: a, mint: true, cover: a},
		{name: "one that it grew from", records: []*effect.Record{session(1, effect.Acked, span(150, 160), 1)}, w: a, want: 1, cover: a},
		{name: "one that covers more", records: []*effect.Record{session(1, effect.Acked, span(50, 160), 1)}, w: a, want: 1, cover: span(50, 200)},
		{
			name:    "two of which the later ran",
			records: []*effect.Record{session(1, effect.Prepared, a, 0), session(2, effect.Acked, b, 9)},
			w:       span(150, 260), want: 2, cover: span(100, 300), merged: keys(1),
		},
		{
			name:    "two that ran",
			records: []*effect.Record{session(1, effect.Acked, a, 9), session(2, effect.Reconciled, b, 8)},
			w:       span(150, 260), want: 2, cover: span(100, 300), merged: keys(1),
		},
		{
			name:    "none ran",
			records: []*effect.Record{session(2, effect.Held, b, 0), session(1, effect.Voided, a, 0), session(3, effect.Rejected, span(90, 120), 3)},
			w:       span(110, 260), want: 1, cover: span(90, 300), merged: keys(2, 3),
		},
		{
			name:    "an unknown outcome comes first",
			records: []*effect.Record{session(3, effect.Manual, a, 5), session(2, effect.Unknown, b, 0), session(1, effect.Acked, a, 9)},
			w:       span(150, 260), cover: span(100, 300), unsettled: keys(2, 3),
		},
		{
			name:    "all were rejected",
			records: []*effect.Record{session(1, effect.Rejected, b, 3), session(2, effect.Rejected, a, 4)},
			w:       span(150, 260), want: 2, cover: span(100, 300), merged: keys(1),
		},
	} {
		id := rewardOf()
		id.Window = c.w
		m := ledger.MatchSession(c.records, &id)
		want := effect.EffectKey{c.want}
		if m.Mint != c.mint || m.Effect != want || m.Cover != c.cover || !slices.Equal(m.Merged, c.merged) || !slices.Equal(m.Unsettled, c.unsettled) {
			t.Errorf("%s: %+v", c.name, m)
		}
	}
}

func TestOtherEffectsAreNoSession(t *testing.T) {
	id := rewardOf()
	into := effect.EffectKey{7}
	for name, change := range map[string]func(*effect.Record){
		"stream":  func(r *effect.Record) { r.Identity.Stream = "other" },
		"key":     func(r *effect.Record) { r.Identity.Key = "other" },
		"type":    func(r *effect.Record) { r.Identity.EffectType = "other" },
		"subject": func(r *effect.Record) { r.Identity.Subject = "other" },
		"merged":  func(r *effect.Record) { r.MergedInto = &into },
		"linked":  func(r *effect.Record) { r.Correction = &effect.Correction{Of: into, Number: 1} },
		"tumbling": func(r *effect.Record) {
			r.Covered = nil
		},
	} {
		r := session(1, effect.Acked, id.Window, 1)
		change(r)
		if m := ledger.MatchSession([]*effect.Record{r}, &id); !m.Mint {
			t.Errorf("another %s matches", name)
		}
	}
	other := session(1, effect.Acked, id.Window, 1)
	other.Identity.Job = "another-job"
	if m := ledger.MatchSession([]*effect.Record{other}, &id); m.Mint {
		t.Error("another job of the same type mints a second key")
	}
}

func TestSessionsThatShareAnEffect(t *testing.T) {
	r := session(1, effect.Acked, span(100, 200), 1)
	current := []revision.Window{span(0, 100), span(90, 140), span(160, 210), span(200, 220)}
	if got := ledger.Sharing(r, current); !slices.Equal(got, current[1:3]) {
		t.Errorf("shared by %v", got)
	}
	into := effect.EffectKey{2}
	r.MergedInto = &into
	if got := ledger.Sharing(r, current); got != nil {
		t.Errorf("a merged effect is shared by %v", got)
	}
}

// Whatever order the records are in, and whatever was merged before, one effect stands.
func TestMatchingDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var records []*effect.Record
		for n := range rapid.IntRange(0, 6).Draw(t, "records") {
			start := rapid.Int64Range(0, 50).Draw(t, "start")
			w := span(start, start+rapid.Int64Range(1, 20).Draw(t, "length"))
			s := rapid.SampledFrom(effect.States()).Draw(t, "state")
			sent := effect.Time(0)
			if s.Outcome() != effect.NotApplied || s == effect.Rejected {
				sent = effect.Time(rapid.Int64Range(1, 3).Draw(t, "sent"))
			}
			records = append(records, session(byte(n+1), s, w, sent))
		}
		id := rewardOf()
		start := rapid.Int64Range(0, 60).Draw(t, "from")
		id.Window = span(start, start+rapid.Int64Range(1, 30).Draw(t, "for"))
		m := ledger.MatchSession(records, &id)
		again := ledger.MatchSession(rapid.Permutation(records).Draw(t, "order"), &id)
		if m.Mint != again.Mint || m.Effect != again.Effect || m.Cover != again.Cover ||
			!slices.Equal(m.Merged, again.Merged) || !slices.Equal(m.Unsettled, again.Unsettled) {
			t.Fatalf("%+v in one order, %+v in another", m, again)
		}
		if m.Cover.Start > id.Window.Start || m.Cover.End < id.Window.End {
			t.Fatalf("%+v does not cover the session %+v", m.Cover, id.Window)
		}
		if n := len(m.Unsettled); m.Mint && (n > 0 || !m.Effect.IsZero()) || n > 0 && !m.Effect.IsZero() || slices.Contains(m.Merged, m.Effect) {
			t.Fatalf("%+v says two things", m)
		}
	})
}

package gates

import (
	"cmp"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// spans holds the current sessions of one key, by start.
type spans []revision.Window

// place answers where a session of w's start stands or belongs.
func (s spans) place(w revision.Window) (int, bool) {
	return slices.BinarySearchFunc(s, w, func(a, b revision.Window) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
	})
}

// holder answers the session that holds t, false for none.
func (s spans) holder(t envelope.EventTime) (int, bool) {
	at, _ := s.place(revision.Window{Start: t, End: envelope.MaxEventTime})
	return at - 1, at > 0 && t < s[at-1].End
}

// takeGroups checks the revisions of one batch: every retraction that names a successor
// is named by it, in the same batch and in the same order, and no current session of a
// key overlaps another behind the batch.
func (a *accepted) takeGroups(batch []*revision.Revision, seq uint64) {
	retracted := map[string][]revision.Supersession{} // by successor
	for _, r := range batch {
		if r.SupersededBy != "" {
			retracted[r.SupersededBy] = append(retracted[r.SupersededBy], revision.Supersession{ProjectionID: r.ProjectionID, Revision: r.Revision})
			continue
		}
		if len(r.Supersedes) == 0 && len(retracted[r.ProjectionID]) == 0 {
			continue
		}
		a.groups.look(1)
		if !slices.Equal(r.Supersedes, retracted[r.ProjectionID]) {
			a.groups.fail("sequence %d: key %q session %s to %s: revision %d replaces %d sessions, but %d others name it in its batch", seq, r.Key, r.Window.Start, r.Window.End, r.Revision, len(r.Supersedes), len(retracted[r.ProjectionID]))
		}
		delete(retracted, r.ProjectionID)
	}
	for _, r := range batch {
		if _, open := retracted[r.SupersededBy]; open && r.SupersededBy != "" {
			a.groups.fail("sequence %d: key %q session %s to %s: what replaces it is not in its batch", seq, r.Key, r.Window.Start, r.Window.End)
		}
	}
	if a.sessions != nil {
		a.overlaps(batch, seq)
	}
}

// overlaps moves the current sessions and looks at the neighbours of those that came.
func (a *accepted) overlaps(batch []*revision.Revision, seq uint64) {
	for _, r := range batch {
		list := a.sessions[r.Key]
		at, had := list.place(r.Window)
		switch {
		case r.Op == revision.Retract && had:
			a.sessions[r.Key] = slices.Delete(list, at, at+1)
		case r.Op == revision.Upsert && !had:
			a.sessions[r.Key] = slices.Insert(list, at, r.Window)
		}
	}
	for _, r := range batch {
		list := a.sessions[r.Key]
		at, current := list.place(r.Window)
		if !current {
			continue
		}
		a.groups.look(1)
		for i := max(at, 1); i <= min(at+1, len(list)-1); i++ {
			if list[i-1].End > list[i].Start {
				a.groups.fail("sequence %d: key %q: readers see the sessions %s to %s and %s to %s at once", seq, r.Key, list[i-1].Start, list[i-1].End, list[i].Start, list[i].End)
			}
		}
	}
}

package projector

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// stream is a business stream as queries see it: its jobs and their canonical aliases.
type stream struct {
	doc *policy.BusinessStream

	mu      sync.RWMutex
	jobs    []*job // sorted by name, generation
	aliases map[string]*revision.Alias
	ready   bool
	known   chan struct{} // closed when the aliases of the start have been read
}

// job is one policy generation with its partitions, by number.
type job struct {
	policy *policy.StreamTimePolicy
	units  []*unit
}

func newStream(doc *policy.BusinessStream) *stream {
	return &stream{doc: doc, aliases: map[string]*revision.Alias{}, known: make(chan struct{})}
}

func (st *stream) add(j *job) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.jobs = append(st.jobs, j)
	slices.SortFunc(st.jobs, func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.policy.Job, b.policy.Job), cmp.Compare(a.policy.Generation, b.policy.Generation))
	})
}

func (st *stream) job(name string, generation int) *job {
	st.mu.RLock()
	defer st.mu.RUnlock()
	for _, j := range st.jobs {
		if j.policy.Job == name && j.policy.Generation == generation {
			return j
		}
	}
	return nil
}

// all answers every job generation in order.
func (st *stream) all() []*job {
	st.mu.RLock()
	defer st.mu.RUnlock()
	return slices.Clone(st.jobs)
}

// units answers every partition of every job generation.
func (st *stream) units() []*unit {
	var units []*unit
	for _, j := range st.all() {
		units = append(units, j.units...)
	}
	return units
}

// epoch answers the aliases as they stand at one moment, sorted by job.
func (st *stream) epoch() []revision.Alias {
	st.mu.RLock()
	defer st.mu.RUnlock()
	aliases := make([]revision.Alias, 0, len(st.aliases))
	for _, a := range st.aliases {
		aliases = append(aliases, *a)
	}
	slices.SortFunc(aliases, func(a, b revision.Alias) int { return cmp.Compare(a.Job, b.Job) })
	return aliases
}

// awaitReady waits until aliases and views have caught up with what was there at the
// start; false when ctx ended before.
func (st *stream) awaitReady(ctx context.Context) bool {
	select {
	case <-st.known:
	case <-ctx.Done():
		return false
	}
	for _, u := range st.units() {
		select {
		case <-u.ready:
		case <-ctx.Done():
			return false
		}
	}
	st.mu.Lock()
	st.ready = true
	st.mu.Unlock()
	return true
}

func (st *stream) isReady() bool {
	st.mu.RLock()
	defer st.mu.RUnlock()
	return st.ready
}

// followAliases keeps the aliases as the revisions stream says, until ctx ends.
func (st *stream) followAliases(ctx context.Context, js jetstream.JetStream, clk clock.Clock, log zerolog.Logger) {
	next := uint64(1)
	for ctx.Err() == nil {
		err := st.readAliases(ctx, js, &next)
		if ctx.Err() != nil {
			return
		}
		log.Warn().Err(err).Str("stream", st.doc.Name).Msg("projector: reading aliases, will try again")
		timer := clk.NewTimer(second)
		select {
		case <-timer.C():
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (st *stream) readAliases(ctx context.Context, js jetstream.JetStream, next *uint64) error {
	name, filter := subject.RevisionsStream(st.doc.Name), subject.AliasAll(st.doc.Name)
	target, err := journal.LastSeq(ctx, js, name, filter)
	if err != nil {
		return err
	}
	reader, err := journal.Read(ctx, js, name, 0, *next, filter)
	if err != nil {
		return err
	}
	defer reader.Close()
	for {
		if *next > target {
			st.markKnown()
		}
		m, err := reader.Next(ctx)
		if err != nil {
			return err
		}
		alias, err := revision.ParseAlias(m.Data)
		if err != nil {
			return damagef("stream %s, sequence %d: %v", name, m.Seq, err)
		}
		st.mu.Lock()
		st.aliases[alias.Job] = alias
		st.mu.Unlock()
		*next = m.Seq + 1
	}
}

func (st *stream) markKnown() {
	st.mu.Lock()
	defer st.mu.Unlock()
	select {
	case <-st.known:
	default:
		close(st.known)
	}
}

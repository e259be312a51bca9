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
	doc      *policy.BusinessStream
	instance string

	mu      sync.RWMutex
	jobs    []*job // sorted by name, generation
	aliases map[string]*revision.Alias
	ready   bool
	asked   bool          // whoever asked for the status was told that we are not ready
	known   chan struct{} // closed when the aliases of the start have been read
}

// job is one policy generation with its partitions, by number.
type job struct {
	policy *policy.StreamTimePolicy
	units  []*unit
}

func newStream(doc *policy.BusinessStream, instance string) *stream {
	return &stream{doc: doc, instance: instance, aliases: map[string]*revision.Alias{}, known: make(chan struct{})}
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

// awaitViews waits until aliases and views have caught up with what was there at the
// start; false when ctx ended before.
func (st *stream) awaitViews(ctx context.Context) bool {
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
	return true
}

// becomeReady lets queries in. It answers false when somebody asked for the status since
// the last call: who was told that we are not ready does not wait for our views, so they
// must first reach what is accepted by now.
func (st *stream) becomeReady() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.asked {
		st.asked = false
		return false
	}
	st.ready = true
	return true
}

// askReady answers isReady to somebody who will rely on a no.
func (st *stream) askReady() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.asked = st.asked || !st.ready
	return st.ready
}

// reachNow waits until every view holds what is accepted at the time of the call; false
// when ctx ended before. Halted views answer as far as they reach.
func (st *stream) reachNow(ctx context.Context, js jetstream.JetStream, clk clock.Clock) bool {
	ticker := clk.NewTicker(second / 20)
	defer ticker.Stop()
	for _, u := range st.units() {
		target, known := uint64(0), false
		for {
			if !known {
				last, err := journal.LastSeq(ctx, js, subject.RevisionsStream(st.doc.Name), u.part.fence())
				target, known = last, err == nil
			}
			if known && u.reaches(target) {
				break
			}
			select {
			case <-ticker.C():
			case <-ctx.Done():
				return false
			}
		}
	}
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

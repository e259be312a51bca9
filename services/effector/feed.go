package effector

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// walk says why a feed reads what was accepted before. It stands as Index in the input
// position of a COMMIT.
type walk uint32

const (
	walkNone   walk = iota // everything so far was judged
	walkAnew               // an activation, or an alias without another generation: judge again
	walkSwitch             // another generation became canonical: new keys start HELD
)

// feed reads the revisions of one job's canonical generation in one key partition, by
// whole batches, in a goroutine of its own. What changes while it reads is the owner's.
type feed struct {
	part       partition
	job        string
	generation int
	epoch      uint64 // of the alias
	basis      uint64 // sequence of the CONTROL that it follows from
	created    int64  // identity of the revisions stream
	from       uint64
	target     uint64 // a walk is over behind it; 0 where there is none
	stop       context.CancelFunc
	done       chan struct{}

	kind  walk   // of the walk with which it began
	mode  walk   // none once that is over
	next  uint64 // behind the last batch that was judged whole
	wdata envelope.EventTime
}

func (f *feed) fence() string { return f.part.fence(f.job, f.generation) }

// arrival is one whole batch, or the end of a feed.
type arrival struct {
	feed   *feed
	first  uint64 // sequence of its first message
	fence  uint64
	commit *revision.Commit
	in     []incoming // in the order in which they are judged
	judged int        // of in, by accepted commits
	err    error
}

// incoming is a revision with its place in the stream.
type incoming struct {
	rev      *revision.Revision
	seq      uint64
	switched bool // it was accepted before its generation became canonical
}

// run reads until ctx ends or fails; what it reads goes to out.
func (f *feed) run(ctx context.Context, js jetstream.JetStream, v *view, sessions bool, out chan<- *arrival) {
	defer close(f.done)
	err := f.read(ctx, js, v, sessions, out)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		err = errors.New("the reader of the revisions stream ended")
	}
	select {
	case out <- &arrival{feed: f, err: err}:
	case <-ctx.Done():
	}
}

func (f *feed) read(ctx context.Context, js jetstream.JetStream, v *view, sessions bool, out chan<- *arrival) error {
	stream := subject.RevisionsStream(f.part.stream)
	if f.kind != walkNone {
		if err := f.survey(ctx, js, v); err != nil {
			return err
		}
	}
	reader, err := journal.Read(ctx, js, stream, f.created, f.from, f.part.revisions(f.job, f.generation), f.fence())
	if err != nil {
		return err
	}
	defer reader.Close()
	group := journal.NewBatchGrouper(stream, f.fence())
	for {
		m, err := reader.Next(ctx)
		if err != nil {
			return err
		}
		b, err := group.Add(m)
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		a, err := f.arrive(b, v, sessions)
		if err != nil {
			return err
		}
		select {
		case out <- a:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// arrive reads the revisions of a batch. In a walk only those are judged that are current.
func (f *feed) arrive(b *journal.Batch, v *view, sessions bool) (*arrival, error) {
	a := &arrival{feed: f, first: b.FenceSeq, fence: b.FenceSeq, commit: b.Fence.Commit}
	if b.Fence.Commit == nil {
		return a, nil
	}
	for _, m := range b.Messages {
		a.first = min(a.first, m.Seq)
		r, err := f.parse(m)
		if err != nil {
			return nil, err
		}
		a.in = append(a.in, incoming{rev: r, seq: m.Seq, switched: f.kind == walkSwitch && b.FenceSeq <= f.target})
	}
	if b.FenceSeq <= f.target {
		var err error
		if a.in, err = f.current(v, a.in); err != nil {
			return nil, err
		}
	}
	if sessions { // what takes a session's place is judged before what it replaces goes
		slices.SortStableFunc(a.in, func(x, y incoming) int { return retracts(x.rev) - retracts(y.rev) })
	}
	return a, nil
}

func retracts(r *revision.Revision) int {
	if r.Op == revision.Retract {
		return 1
	}
	return 0
}

// surveyed is how many projections of a survey go into the file at once.
const surveyed = 8 << 10

// survey notes in the view's file which revision of each projection is the current one.
// The file is a cache, and so is this: a walk that is taken up again is surveyed again.
func (f *feed) survey(ctx context.Context, js jetstream.JetStream, v *view) error {
	if f.target == 0 {
		return nil
	}
	some := make(map[string]uint64, surveyed)
	flush := func() error {
		err := v.store.Update(func(tx *checkpoint.Tx) error {
			bucket, err := tx.Bucket(walkBucket)
			for key, seq := range some {
				if err == nil {
					err = bucket.Put([]byte(key), binary.BigEndian.AppendUint64(nil, seq))
				}
			}
			return err
		})
		clear(some)
		return err
	}
	group := journal.NewBatchGrouper(subject.RevisionsStream(f.part.stream), f.fence())
	err := journal.ReadRange(ctx, js, subject.RevisionsStream(f.part.stream), f.created, 1, f.target, func(m journal.Msg) error {
		b, err := group.Add(m)
		if err != nil || b == nil || b.Fence.Commit == nil {
			return err
		}
		for _, m := range b.Messages {
			r, err := f.parse(m)
			if err != nil {
				return err
			}
			some[f.walkKey(r)] = m.Seq
		}
		if len(some) < surveyed {
			return nil
		}
		return flush()
	}, f.part.revisions(f.job, f.generation), f.fence())
	if err != nil {
		return err
	}
	return flush()
}

func (f *feed) parse(m journal.Msg) (*revision.Revision, error) {
	r, err := revision.ParseJSON(m.Data)
	if err != nil {
		return nil, damagef("stream %s, sequence %d: %v; restore the stream from a backup", subject.RevisionsStream(f.part.stream), m.Seq, err)
	}
	return r, nil
}

func (f *feed) walkKey(r *revision.Revision) string { return f.job + " " + r.ProjectionID }

// current answers those of list that the survey found to be current.
func (f *feed) current(v *view, list []incoming) (kept []incoming, err error) {
	err = v.store.View(func(tx *checkpoint.Tx) error {
		bucket, err := tx.Bucket(walkBucket)
		if err != nil {
			return err
		}
		for _, in := range list {
			value, err := bucket.Get([]byte(f.walkKey(in.rev)))
			if err != nil {
				return err
			}
			if len(value) == 8 && binary.BigEndian.Uint64(value) == in.seq {
				kept = append(kept, in)
			}
		}
		return nil
	})
	return kept, err
}

// end stops the feed and waits for it.
func (f *feed) end() {
	f.stop()
	<-f.done
}

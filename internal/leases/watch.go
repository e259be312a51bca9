package leases

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// watch hands every change of the role's entries to out until ctx ends. What was seen
// before a watch began anew is shown again; revisions tell.
func (h *Holder) watch(ctx context.Context, out chan<- update) {
	for ctx.Err() == nil {
		err := h.watchOnce(ctx, out)
		if ctx.Err() != nil {
			return
		}
		h.o.Log.Debug().Err(err).Msg("leases: the watch begins anew")
		timer := h.o.Clock.NewTimer(h.tick())
		select {
		case <-timer.C():
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (h *Holder) watchOnce(ctx context.Context, out chan<- update) error {
	kv, err := h.open(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := kv.WatchFiltered(ctx, []string{subject.LeasesOf(h.o.Role), subject.MembersOf(h.o.Role)})
	if err != nil {
		return fmt.Errorf("watch the leases: %w", err)
	}
	defer func() { _ = w.Stop() }() // it has ended when this fails
	for {
		select {
		case e, ok := <-w.Updates():
			if !ok {
				return errors.New("the watch of the leases ended")
			}
			select {
			case out <- updateOf(e):
			case <-ctx.Done():
				return ctx.Err()
			}
		case <-h.rewatch:
			return errors.New("the watch does not show our own heartbeats")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func updateOf(e jetstream.KeyValueEntry) update {
	if e == nil {
		return update{synced: true}
	}
	u := update{key: e.Key(), revision: e.Revision()}
	if e.Operation() == jetstream.KeyValuePut {
		u.data = e.Value()
	}
	return u
}

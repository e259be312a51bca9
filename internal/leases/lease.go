package leases

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Lease is one held lease. It is renewed until it is lost or released.
type Lease struct {
	holder   *Holder
	key      string
	term     string
	revision uint64 // of the renewing goroutine until done is closed
	lost     chan struct{}
	done     chan struct{}
	stop     context.CancelFunc
	once     sync.Once
}

// hold starts renewing. renewed is a moment before the entry was written, so that we give
// up before anybody else may take over.
func (h *Holder) hold(key, term string, revision uint64, renewed time.Time) *Lease {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Lease{holder: h, key: key, term: term, revision: revision, lost: make(chan struct{}), done: make(chan struct{}), stop: cancel}
	go l.renew(ctx, renewed)
	return l
}

// Lost is closed when the lease is no longer ours.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// renew writes the entry every ttl/3 until that fails for ttl, or somebody else did.
func (l *Lease) renew(ctx context.Context, renewed time.Time) {
	defer close(l.done)
	defer close(l.lost)
	clk, ttl := l.holder.clk, l.holder.ttl
	for {
		timer := clk.NewTimer(max(0, min(ttl/3, ttl-clk.Since(renewed))))
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return
		}
		began := clk.Now()
		switch err := l.write(ctx); {
		case err == nil:
			renewed = began
		case errors.Is(err, errTaken) || clk.Since(renewed) >= ttl:
			return
		}
	}
}

var errTaken = errors.New("taken by another holder")

// write renews once. A refused write may follow one of ours whose answer was lost.
func (l *Lease) write(ctx context.Context) error {
	kv, err := l.holder.open(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, min(askTimeout, max(l.holder.ttl/3, 10*time.Millisecond)))
	defer cancel()
	revision, err := kv.Update(ctx, l.key, l.holder.value(l.term), l.revision)
	if err == nil {
		l.revision = revision
		return nil
	}
	if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return err
	}
	have, err := kv.Get(ctx, l.key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return errTaken
	}
	if err != nil {
		return err
	}
	var e entry
	if json.Unmarshal(have.Value(), &e) != nil || e.Term != l.term {
		return errTaken
	}
	l.revision = have.Revision()
	return nil
}

// Release gives the lease back, so that others need not wait for its silence. It waits
// for the server, for a moment at most.
func (l *Lease) Release() {
	l.once.Do(func() {
		taken := false
		select {
		case <-l.lost:
			taken = true
		default:
		}
		l.stop()
		<-l.done
		if taken {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		kv, err := l.holder.open(ctx)
		if err != nil {
			return
		}
		// When this fails, the entry falls silent and others take over after ttl.
		_ = kv.Delete(ctx, l.key, jetstream.LastRevision(l.revision))
	})
}

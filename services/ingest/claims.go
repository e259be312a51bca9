package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/failpoint"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Periods of ownership.
const (
	checkpointEvery = time.Second
	claimAgain      = 500 * time.Millisecond
	recordTimeout   = 5 * time.Second
)

const sourceSchema = "sourceRecord.v1"

// sourceRecord is a message of the sources journal. Every record holds who owns the
// partition and how far it is, so the last one on a subject says everything.
type sourceRecord struct {
	Schema     string     `json:"schema"`
	Kind       string     `json:"kind"` // claim or checkpoint
	Claim      claim      `json:"claim"`
	Checkpoint checkpoint `json:"checkpoint"`
}

type claim struct {
	Epoch   uint64 `json:"epoch"`
	Owner   string `json:"owner"`
	Address string `json:"address,omitempty"`
	Writer  string `json:"writer"`
}

// checkpoint is how far a source partition is; everything it speaks of is durable.
type checkpoint struct {
	Epoch        uint64                        `json:"epoch"`
	Generation   uint64                        `json:"generation"`
	Offset       uint64                        `json:"offset"`
	MaxEventTime map[string]envelope.EventTime `json:"maxEventTime,omitempty"`
	Finished     bool                          `json:"finished,omitempty"`
	Resume       *resumePoint                  `json:"resume,omitempty"`
}

func (c checkpoint) equal(o checkpoint) bool {
	return c.Epoch == o.Epoch && c.Generation == o.Generation && c.Offset == o.Offset && c.Finished == o.Finished &&
		c.Resume.equal(o.Resume) && maps.Equal(c.MaxEventTime, o.MaxEventTime)
}

// recordState is what the sources journal holds of an ownership.
type recordState struct {
	mu      sync.Mutex
	claim   claim
	seq     uint64 // of our last record: the expectation of the next
	written checkpoint
}

// Errors of the sources journal.
var (
	errFenced  = errors.New("another ingest process claimed the source partition")
	errDamaged = errors.New("the sources journal holds a record that cannot be read")
)

// JetStream codes of a refused expectation: another record came between, or perhaps one
// is on its way (the outcome is unknown).
const (
	codeWrongLastSequence        = 10071
	codeWrongLastSequenceUnknown = 10164
)

// conflict tells whether an expectation was refused, or may have been.
func conflict(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == codeWrongLastSequence || api.ErrorCode == codeWrongLastSequenceUnknown)
}

// lastRecord reads the last record of a source partition from the leader; seq 0 = none.
func (p *partition) lastRecord(ctx context.Context) (rec sourceRecord, seq uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	name := subject.SourcesStream(p.stream.name)
	st, err := p.stream.svc.js.Stream(ctx, name)
	if err != nil {
		return rec, 0, fmt.Errorf("stream %s: %w", name, err)
	}
	msg, err := st.GetLastMsgForSubject(ctx, subject.Source(p.stream.name, p.source, p.number))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return rec, 0, nil
	}
	if err != nil {
		return rec, 0, fmt.Errorf("stream %s: last record of source partition %s: %w", name, p, err)
	}
	if err := json.Unmarshal(msg.Data, &rec); err != nil || rec.Schema != sourceSchema {
		return rec, 0, fmt.Errorf("%w: sequence %d of stream %s (schema %q): restore the stream from a backup, or run the version that wrote it",
			errDamaged, msg.Sequence, name, rec.Schema)
	}
	return rec, msg.Sequence, nil
}

// append writes rec behind the record at expect and answers its sequence; errFenced when
// another process wrote in between. Unknown outcomes are settled by reading.
func (p *partition) append(ctx context.Context, rec sourceRecord, expect uint64) (uint64, error) {
	data, err := json.Marshal(rec)
	if err != nil {
		return 0, fmt.Errorf("record of source partition %s: %w", p, err)
	}
	msg := &nats.Msg{Subject: subject.Source(p.stream.name, p.source, p.number), Data: data}
	bounded, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	ack, err := p.stream.svc.js.PublishMsg(bounded, msg, jetstream.WithExpectStream(subject.SourcesStream(p.stream.name)),
		jetstream.WithExpectLastSequencePerSubject(expect), jetstream.WithRetryAttempts(0))
	if err == nil {
		return ack.Sequence, nil
	}
	found, seq, again := p.lastRecord(ctx)
	switch {
	case again != nil:
		return 0, errors.Join(err, again)
	case seq > expect && found.Claim == rec.Claim && found.Kind == rec.Kind && found.Checkpoint.equal(rec.Checkpoint):
		return seq, nil
	case seq > expect:
		return 0, fmt.Errorf("%w: epoch %d of %s", errFenced, found.Claim.Epoch, found.Claim.Owner)
	case conflict(err):
		return 0, fmt.Errorf("record of source partition %s: outcome unknown: %w", p, err)
	}
	return 0, fmt.Errorf("record of source partition %s: %w", p, err)
}

// claim takes the partition over: a new epoch and generation, and the maxima of the last
// checkpoint and nothing else.
func (p *partition) claim(ctx context.Context) (*ownership, error) {
	last, seq, err := p.lastRecord(ctx)
	if err != nil {
		return nil, err
	}
	if err := failpoint.Hit("ingest/before-claim"); err != nil {
		return nil, err
	}
	s := p.stream.svc
	epoch := last.Claim.Epoch + 1
	rec := sourceRecord{
		Schema: sourceSchema, Kind: "claim",
		Claim: claim{Epoch: epoch, Owner: s.instance, Address: s.address, Writer: s.writer},
		Checkpoint: checkpoint{
			Epoch: epoch, Generation: epoch<<32 | 1, MaxEventTime: last.Checkpoint.MaxEventTime,
			Finished: last.Checkpoint.Finished, Resume: last.Checkpoint.Resume,
		},
	}
	if seq, err = p.append(ctx, rec, seq); err != nil {
		return nil, err
	}
	if err := failpoint.Hit("ingest/after-claim"); err != nil {
		return nil, err
	}
	own := &ownership{
		epoch: epoch, generation: rec.Checkpoint.Generation, maxima: maps.Clone(rec.Checkpoint.MaxEventTime),
		finished: rec.Checkpoint.Finished, durable: rec.Checkpoint,
		lost: make(chan struct{}), final: make(chan struct{}),
	}
	if own.maxima == nil {
		own.maxima = make(map[string]envelope.EventTime)
	}
	if point := rec.Checkpoint.Resume; point != nil {
		own.resume = resume{token: point.Token, upto: point.Line}
	}
	own.record.claim, own.record.seq, own.record.written = rec.Claim, seq, rec.Checkpoint
	s.metrics.claims.Inc()
	return own, nil
}

// checkpoint writes how far the ownership is, if that moved. When another process took
// over, the ownership is lost.
func (p *partition) checkpoint(ctx context.Context, own *ownership) error {
	own.record.mu.Lock()
	defer own.record.mu.Unlock()
	p.mu.Lock()
	state := own.durable
	p.mu.Unlock()
	if own.isLost() {
		return errFenced
	}
	if state.equal(own.record.written) {
		return nil
	}
	if err := failpoint.Hit("ingest/before-checkpoint"); err != nil {
		return err
	}
	rec := sourceRecord{Schema: sourceSchema, Kind: "checkpoint", Claim: own.record.claim, Checkpoint: state}
	seq, err := p.append(ctx, rec, own.record.seq)
	if err == nil {
		err = failpoint.Hit("ingest/after-checkpoint")
	}
	switch {
	case errors.Is(err, errFenced):
		own.lose()
		return err
	case err != nil:
		return err
	}
	own.record.seq, own.record.written = seq, state
	return nil
}

// supervise owns the partition as long and as often as it can: lease, claim, keep.
func (p *partition) supervise(ctx context.Context) {
	s := p.stream.svc
	log := s.log.With().Str("stream", p.stream.name).Str("sourcePartition", p.String()).Logger()
	for ctx.Err() == nil {
		err := p.ownOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errDamaged):
			p.setHalted(err.Error())
			log.Error().Err(err).Msg("source partition halted")
			<-ctx.Done()
			return
		case err != nil:
			log.Warn().Err(err).Msg("source partition is not owned; trying again")
		}
		pause := s.clock.NewTimer(claimAgain)
		select {
		case <-pause.C():
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// ownOnce waits for the lease, claims, and keeps the partition until it is lost.
func (p *partition) ownOnce(ctx context.Context) error {
	s := p.stream.svc
	known, stopLooking := context.WithCancel(ctx)
	go p.watchHolder(known)
	lease, err := s.leases.acquire(ctx, p.leaseKey())
	stopLooking()
	if err != nil {
		return fmt.Errorf("lease: %w", err)
	}
	defer lease.Release()
	if err := failpoint.Hit("ingest/leased"); err != nil {
		return err
	}
	own, err := p.claim(ctx)
	if err != nil {
		p.setWaiting(err.Error())
		return fmt.Errorf("claim: %w", err)
	}
	if err := p.begin(own); err != nil {
		p.end(own)
		return err
	}
	defer p.end(own)
	s.log.Info().Str("stream", p.stream.name).Str("sourcePartition", p.String()).Uint64("epoch", own.epoch).Msg("source partition claimed")
	tick := s.clock.NewTicker(checkpointEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-own.lost:
			return errFenced
		case <-lease.Lost():
			return errors.New("the lease was lost")
		case <-lease.Yield():
			return p.handOver(ctx, own)
		case <-tick.C():
			if err := p.checkpoint(ctx, own); err != nil && !errors.Is(err, errFenced) {
				s.log.Warn().Err(err).Msg("checkpoint was not written; trying again")
			}
		}
	}
}

// handOverFor bounds how long requests under way are waited for when the partition goes to
// another process; their senders come back then.
const handOverFor = 3 * time.Second

// handOver takes no more requests, lets those under way finish, and leaves the last mark
// and checkpoint. Requests that come in between are asked to come again.
func (p *partition) handOver(ctx context.Context, own *ownership) error {
	s := p.stream.svc
	p.mu.Lock()
	p.yielding = true
	sub := p.sub
	p.mu.Unlock()
	if sub != nil {
		// Requests that the server sent already are answered. It fails only on a closed connection.
		_ = sub.Drain()
	}
	ctx, cancel := context.WithTimeout(ctx, handOverFor)
	defer cancel()
	tick := s.clock.NewTicker(lookEvery / 5)
	defer tick.Stop()
	for !p.settledAll() {
		select {
		case <-tick.C():
		case <-own.lost:
			return errFenced
		case <-ctx.Done():
			return errors.New("handing over: requests under way did not settle in time; their senders come back")
		}
	}
	if _, err := p.stream.flush(ctx); err != nil {
		return fmt.Errorf("handing over without a last mark: %w", err)
	}
	if err := p.checkpoint(ctx, own); err != nil {
		return fmt.Errorf("handing over without a last checkpoint: %w", err)
	}
	s.log.Info().Str("stream", p.stream.name).Str("sourcePartition", p.String()).Uint64("epoch", own.epoch).Msg("source partition handed over")
	return nil
}

// settledAll tells whether no request is under way.
func (p *partition) settledAll() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pending == 0 && p.inFlight == 0
}

// watchHolder notes that the partition waits for an owner, until another process is seen
// to hold it or ctx ends.
func (p *partition) watchHolder(ctx context.Context) {
	s := p.stream.svc
	p.setWaiting("waits for its lease")
	tick := s.clock.NewTicker(claimAgain)
	defer tick.Stop()
	for {
		if address, err := s.leases.Who(ctx, p.leaseKey()); err == nil && address != "" && address != s.address {
			if ctx.Err() == nil {
				p.setWaiting("")
			}
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
	}
}

// begin opens the partition to requests.
func (p *partition) begin(own *ownership) error {
	sub, err := p.stream.svc.subscribe(p)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own, p.sub, p.waiting, p.marked, p.yielding = own, sub, "", marked{}, false
	p.quiet.arrival(p.stream.svc.stamp.elapsed())
	return nil
}

// end closes it.
func (p *partition) end(own *ownership) {
	own.lose()
	p.mu.Lock()
	sub := p.sub
	if p.own == own {
		p.own, p.sub = nil, nil
	}
	p.mu.Unlock()
	if sub != nil {
		// It fails only when the connection is closed, and then nothing is subscribed.
		_ = sub.Unsubscribe()
	}
}

func (p *partition) setWaiting(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = text
}

func (p *partition) setHalted(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halted = text
}

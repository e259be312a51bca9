package effectops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

var shared struct {
	conn   *natsio.Conn
	serial atomic.Int64
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "effectops")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		server, err := natsio.Embed(context.Background(), natsio.EmbeddedOptions{Dir: dir, Port: -1})
		if err != nil {
			panic(err)
		}
		defer server.Shutdown()
		if shared.conn, err = server.Connect(context.Background(), "tests"); err != nil {
			panic(err)
		}
		defer shared.conn.Close()
		if err := natsio.Provision(context.Background(), shared.conn.JS, 1); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

var ada = Person{Who: "ada@shop", Reason: "drill"}

// shop makes the effects journals of a fresh business stream.
func shop(t testing.TB, partitions int) *Ops {
	t.Helper()
	bs := fmt.Sprintf("shop%d", shared.serial.Add(1))
	must(t, natsio.ProvisionEffects(deadline(t), shared.conn.JS, bs, partitions, 1))
	return New(shared.conn.JS, bs, partitions)
}

const second = int64(1_000_000)

// provider is an adapter that can be asked and sent again.
func provider(sendWithin time.Duration) ledger.Adapter {
	return ledger.Adapter{
		Idempotent: true, OnBodyMismatch: ledger.BodyError, Retention: 86400 * second, Query: true, QueryFor: 86400 * second,
		SendWithin: sendWithin.Microseconds(), Timeout: 20 * second, Grace: 2 * second, ClockUncertainty: second,
	}
}

// reward is an effect for the tests' shop: the nth key, of an effect type.
type reward struct {
	n          int
	effectType string
	airlock    string
	sendWithin time.Duration
}

func (w reward) identity(bs string) effect.Identity {
	window := revision.Window{Start: 1796032800000000, End: 1796036400000000}
	key := fmt.Sprint("region-", w.n)
	return effect.Identity{
		Stream: bs, Job: "hourly", EffectType: w.effectType, Key: key, Subject: key,
		LogicalWindowID: identity.LogicalWindow(bs, key, window.Start, window.End), Window: window,
	}
}

func (w reward) key(bs string) effect.EffectKey {
	id := w.identity(bs)
	return ledger.Key(&id)
}

func (w reward) judgement(bs string) ledger.Judgement {
	return ledger.Judgement{
		Revision: effect.Bound{
			AliasEpoch: 1, PolicyGeneration: "hourly@14", ProjectionID: strings.Repeat("a", 64), Revision: 5,
			Digest: revision.Digest{5}, Sequence: 105,
		},
		Canonical: true, Holds: true, Provenance: true, Live: true, Airlock: w.airlock, Adapter: provider(w.sendWithin),
		Request: effect.Request{
			Policy: "reward@3", Adapter: "rewards-api@2", Scope: effect.Scope{URL: "https://rewards.example/v1"},
			Payload: fmt.Sprintf(`{"effectKey":%q,"points":100}`, w.key(bs)),
		},
	}
}

func (w reward) judge(bs string) ledger.Judge {
	return ledger.Judge{Identity: w.identity(bs), Judgement: w.judgement(bs)}
}

// owner is a small effector without provider: it answers what is asked and makes the
// steps that a test wants, by the rules of the ledger.
type owner struct {
	t      testing.TB
	ops    *Ops
	w      *journal.Writer
	l      *ledgerOf
	reader *journal.Reader
	steps  chan wanted
	cancel context.CancelFunc
	ended  chan struct{}
}

// wanted is an event that a test wants to happen to an effect.
type wanted struct {
	key    effect.EffectKey
	event  func(s *effectlog.State, r *effect.Record) ledger.Event
	answer chan ledger.Refusal
}

func own(t testing.TB, ops *Ops, pp int) *owner {
	t.Helper()
	ctx, cancel := context.WithCancel(deadline(t))
	w, head, err := journal.ClaimWriter(ctx, ops.js, journal.Settings{
		Stream: subject.EffectsStream(ops.stream, pp), Subject: subject.Effects(ops.stream, pp), Owner: "tests", CoreVersion: 1, Strict: true,
	})
	must(t, err)
	reader, err := journal.Read(ctx, ops.js, subject.EffectsStream(ops.stream, pp), head.Identity.Created, 1)
	must(t, err)
	o := &owner{t: t, ops: ops, w: w, l: ops.newLedger(pp), reader: reader, steps: make(chan wanted), cancel: cancel, ended: make(chan struct{})}
	go o.run(ctx)
	t.Cleanup(o.stop)
	return o
}

func (o *owner) stop() {
	o.cancel()
	<-o.ended
	o.w.Abort()
}

func (o *owner) run(ctx context.Context) {
	defer close(o.ended)
	err := o.serve(ctx)
	if ctx.Err() == nil {
		o.t.Errorf("the owner ended: %v", err)
	}
}

func (o *owner) serve(ctx context.Context) error {
	for {
		select {
		case m, ok := <-o.reader.C():
			if !ok {
				return o.reader.Err()
			}
			if err := o.take(ctx, m); err != nil {
				return err
			}
			if err := o.answerAll(ctx); err != nil {
				return err
			}
		case s := <-o.steps:
			var refusal ledger.Refusal
			if err := o.write(ctx, func() (records [][]byte) {
				records, refusal = o.decide(s.key, s.event(&o.l.state, o.l.effects[s.key].Record))
				return records
			}); err != nil {
				return err
			}
			if err := o.answerAll(ctx); err != nil {
				return err
			}
			s.answer <- refusal
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (o *owner) answerAll(ctx context.Context) error {
	for len(o.l.state.Asked()) > 0 {
		// What was written is known once it is read back.
		if err := o.write(ctx, o.answers); err != nil {
			return err
		}
		if err := o.catchUp(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (o *owner) catchUp(ctx context.Context) error {
	last, err := journal.LastSeq(ctx, o.ops.js, o.l.stream, "")
	for err == nil && o.l.last < last {
		var m journal.Msg
		if m, err = o.reader.Next(ctx); err == nil {
			err = o.take(ctx, m)
		}
	}
	return err
}

func (o *owner) take(ctx context.Context, m journal.Msg) error {
	if _, err := o.l.take(m); err != nil {
		return err
	}
	return o.w.Observe(ctx, m)
}

// write commits what make answers of the journal as it is, until nothing lands in between.
func (o *owner) write(ctx context.Context, make func() [][]byte) error {
	for {
		if err := o.catchUp(ctx); err != nil {
			return err
		}
		records := make()
		if len(records) == 0 {
			return nil
		}
		p, err := o.w.Commit(ctx, records, revision.NewCommit())
		if err != nil {
			return err
		}
		select {
		case <-p.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
		_, err = p.Result()
		var unseen *journal.ControlError
		if !errors.As(err, &unseen) {
			return err
		}
	}
}

func (o *owner) decide(key effect.EffectKey, e ledger.Event) ([][]byte, ledger.Refusal) {
	next, refusal := ledger.Decide(o.l.effects[key].Record, e, effect.Time(clock.System().Now().UnixMicro()))
	if refusal != "" {
		return nil, refusal
	}
	data, err := next.Encode()
	if err != nil {
		o.t.Errorf("effect %s: %v", key, err)
		return nil, ledger.Malformed
	}
	return [][]byte{data}, ""
}

// answers makes the records of the first thing that waits for an answer.
func (o *owner) answers() [][]byte {
	asked := o.l.state.Asked()
	if len(asked) == 0 {
		return nil
	}
	a := asked[0]
	done := &effectlog.Done{Sequence: a.Seq, Key: a.Key()}
	var records [][]byte
	if c := a.Command; c.Act == effectlog.ActRecover {
		done.Note = "nothing was lost"
	} else {
		if _, known := o.l.effects[a.Key()]; !known {
			done.Refusal = string(ledger.NoEffect)
			data, err := done.Encode()
			if err != nil {
				o.t.Error(err)
			}
			return [][]byte{data}
		}
		var event ledger.Event
		switch c.Act {
		case effectlog.ActApprove:
			event = ledger.Approve{Sequence: a.Seq, Who: c.Stamp.Who, Reason: c.Stamp.Reason, Digest: c.Approve.Digest, Expires: c.Approve.Expires}
		case effectlog.ActHold:
			event = ledger.Hold{By: effect.Operator, Who: c.Stamp.Who, Reason: c.Stamp.Reason}
		case effectlog.ActResolve:
			event = ledger.Resolve{Applied: c.Resolve.Applied, Who: c.Stamp.Who, Reason: c.Stamp.Reason, Ref: c.Resolve.Ref, Evidence: c.Resolve.Evidence}
		default:
			event = ledger.Waive{Who: c.Stamp.Who, Reason: c.Stamp.Reason}
		}
		var refusal ledger.Refusal
		records, refusal = o.decide(a.Key(), event)
		done.Refusal = string(refusal)
		if refusal == "" {
			record, err := effect.Decode(records[0])
			if err != nil {
				o.t.Error(err)
				return nil
			}
			done.Step = record.Step.N
		}
	}
	data, err := done.Encode()
	if err != nil {
		o.t.Error(err)
		return nil
	}
	return append(records, data)
}

// want makes a step and answers why not.
func (o *owner) want(key effect.EffectKey, event func(*effectlog.State, *effect.Record) ledger.Event) ledger.Refusal {
	o.t.Helper()
	s := wanted{key: key, event: event, answer: make(chan ledger.Refusal, 1)}
	select {
	case o.steps <- s:
		return <-s.answer
	case <-o.ended:
		o.t.Fatal("the owner has ended")
		return ""
	}
}

// done makes a step that the ledger allows.
func (o *owner) done(key effect.EffectKey, e ledger.Event) {
	o.t.Helper()
	if refusal := o.want(key, func(*effectlog.State, *effect.Record) ledger.Event { return e }); refusal != "" {
		o.t.Fatalf("%T: %s", e, refusal.Why())
	}
}

// prepare judges a reward.
func (o *owner) prepare(w reward) effect.EffectKey {
	o.t.Helper()
	o.done(w.key(o.ops.stream), w.judge(o.ops.stream))
	return w.key(o.ops.stream)
}

// dispatch opens an attempt, unless a gate is closed.
func (o *owner) dispatch(w reward) ledger.Refusal {
	o.t.Helper()
	return o.want(w.key(o.ops.stream), func(s *effectlog.State, r *effect.Record) ledger.Event {
		return ledger.Dispatch{
			Epoch: o.w.Epoch(), ClosedGate: string(s.ClosedGate(sending(r))), Policy: "reward@3", Adapter: "rewards-api@2",
			Judgement: w.judgement(o.ops.stream), RevisionsUpTo: 1000, Token: true,
		}
	})
}

// begin writes the first CONTROL: the alias of the job.
func begin(t testing.TB, ops *Ops) {
	t.Helper()
	for pp := range ops.partitions {
		id, err := ops.identity(deadline(t), pp)
		must(t, err)
		c := &effectlog.Control{Stamp: ops.stamp(newID(), id.Last, ada), Alias: &effectlog.Alias{Job: "hourly", Epoch: 1, Canonical: 14}}
		data, err := c.Encode()
		must(t, err)
		_, err = ops.append(deadline(t), pp, data)
		must(t, err)
	}
}

package effector

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// ViewKind and ViewFormat are what a view's file says about itself. It is a cache: the
// effects journal holds everything in it.
const (
	ViewKind   = "effector-view"
	ViewFormat = 1
)

const (
	effectsBucket  = "effects"  // effectKey: the last record
	statesBucket   = "states"   // state, effectKey: nothing
	sessionsBucket = "sessions" // digest of (type, key, subject), effectKey: nothing
	ordinalsBucket = "ordinals" // effectKey: which effect of its generation it is
	attemptsBucket = "attempts" // effectKey: number of its last attempt
	walkBucket     = "walk"     // job, projection: sequence of its current revision
	placeName      = "place"
	logName        = "log"
)

// place says how far into the effects journal a view reaches.
type place struct {
	Of       string           `json:"of"`
	Stream   string           `json:"stream"`
	Created  int64            `json:"created"`  // identity of the stream, Unix nanoseconds
	Seq      uint64           `json:"sequence"` // of the last message taken in
	CommitAt uint64           `json:"commitAt"` // of the last COMMIT; 0 = none
	Commit   *revision.Commit `json:"commit,omitempty"`
	Made     map[string]int   `json:"made,omitempty"` // effects by type and generation
}

// view is the fold of one effects journal: the last record of every effect, what the
// journal says beside them, and how far it reaches. One goroutine applies; any number may
// read.
type view struct {
	store *checkpoint.Store

	mu     sync.RWMutex
	place  place
	log    *effectlog.State
	counts map[effect.State]int
	failed error // why it can take in no more; it must be opened again
}

// openView opens the file of a partition's view, or makes it anew when it is damaged or
// that of another partition. It answers the file that was set aside for it, if any.
func openView(path string, of partition) (*view, *checkpoint.SetAside, error) {
	store, err := checkpoint.Open(path, checkpoint.Kind{Name: ViewKind, Format: ViewFormat, Cache: true})
	if err != nil {
		return nil, nil, err
	}
	v := &view{store: store}
	if err = v.load(); err == nil && v.place.Of != "" && v.place.Of != of.String() {
		err = v.reset("stale", "it is the view of "+v.place.Of)
	}
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	v.place.Of = of.String()
	return v, store.SetAside(), nil
}

// load reads what the file says.
func (v *view) load() error {
	v.place, v.log, v.counts = place{}, new(effectlog.State), map[effect.State]int{}
	return v.store.View(func(tx *checkpoint.Tx) error {
		if _, err := tx.Meta(placeName, &v.place); err != nil {
			return err
		}
		if _, err := tx.Meta(logName, v.log); err != nil {
			return err
		}
		states, err := tx.Bucket(statesBucket)
		if err != nil {
			return err
		}
		return states.Each(func(key, _ []byte) error {
			v.counts[stateOf(key)]++
			return nil
		})
	})
}

// reset forgets everything: the journal is folded again.
func (v *view) reset(suffix, why string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	of := v.place.Of
	if err := v.store.Reset(suffix, why); err != nil {
		return err
	}
	err := v.load()
	v.place.Of = of
	return err
}

func (v *view) close() error { return v.store.Close() }

// at answers how far the view reaches.
func (v *view) at() place {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.place
}

// state answers what the journal says beside the effects. It is for the goroutine that
// applies; others ask gates.
func (v *view) state() *effectlog.State { return v.log }

// gates answers every gate, active version and alias.
func (v *view) gates() ([]effectlog.GateState, []effectlog.ActiveState, []effectlog.AliasState) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.log.Gates(), v.log.Actives(), v.log.Aliases()
}

// population answers how many effects stand in each state.
func (v *view) population() map[effect.State]int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return maps.Clone(v.counts)
}

// bind tells a new view which journal it folds.
func (v *view) bind(id journal.Identity) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.place.Stream, v.place.Created = id.Stream, id.Created
}

// applied is what entries changed.
type applied struct {
	effects []*effect.Record
	control bool // gates, versions or aliases moved
	asked   bool // a command or a receipt waits
	voids   []effectlog.Void
}

// apply takes in the next entries of the journal in one transaction. Owners and recovery
// both come through here: what differs is only where the entries come from.
func (v *view) apply(entries ...*journal.Entry) (applied, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.failed != nil {
		return applied{}, v.failed
	}
	f := &folding{place: v.place, counts: v.counts, log: v.log}
	if v.failed = v.store.Update(func(tx *checkpoint.Tx) error { return f.run(tx, entries) }); v.failed != nil {
		return applied{}, v.failed
	}
	v.place = f.place
	return f.applied, nil
}

// folding is one transaction of apply.
type folding struct {
	place   place
	counts  map[effect.State]int
	log     *effectlog.State
	applied applied

	effects, states, sessions, ordinals, attempts *checkpoint.Bucket
}

func (f *folding) run(tx *checkpoint.Tx, entries []*journal.Entry) (err error) {
	for name, bucket := range map[string]**checkpoint.Bucket{
		effectsBucket: &f.effects, statesBucket: &f.states, sessionsBucket: &f.sessions, ordinalsBucket: &f.ordinals,
		attemptsBucket: &f.attempts,
	} {
		if *bucket, err = tx.Bucket(name); err != nil {
			return err
		}
	}
	said := false
	for _, e := range entries {
		if e.Seq <= f.place.Seq {
			continue
		}
		moved, err := f.take(e)
		if err != nil {
			return err
		}
		said = said || moved
	}
	if said { // else it differs in its last sequence alone
		if err := tx.SetMeta(logName, f.log); err != nil {
			return err
		}
	}
	return tx.SetMeta(placeName, f.place)
}

// take folds one entry and tells whether the state beside the effects changed.
func (f *folding) take(e *journal.Entry) (said bool, err error) {
	if next := f.place.Seq + 1; e.Seq != next { // it may have been a pause, or an outcome
		return false, damagef("stream %s: sequence %d follows %d, and what stood between is lost; restore the stream from a backup", f.place.Stream, e.Seq, next-1)
	}
	if e.Commit != nil {
		if err := f.chain(e); err != nil {
			return false, err
		}
	}
	a, err := f.log.Apply(effectlog.Entry{Seq: e.Seq, Foreign: e.Control, Records: e.Records})
	if err != nil {
		return false, damagef("stream %s: %v; restore the stream from a backup", f.place.Stream, err)
	}
	for _, r := range a.Effects {
		if err := f.put(e.Seq, r); err != nil {
			return false, err
		}
	}
	f.place.Seq = e.Seq
	if e.Control != nil {
		f.applied.control = f.applied.control || a.Control != nil || a.Void == effectlog.VoidUnreadable
		f.applied.asked = f.applied.asked || a.Command != nil || a.Evidence != nil
		if a.Void != "" {
			f.applied.voids = append(f.applied.voids, a.Void)
		}
	}
	return e.Control != nil || len(a.Done) > 0, nil
}

// chain checks that the COMMIT follows the one before and names its records.
func (f *folding) chain(e *journal.Entry) error {
	var previous, digest revision.Digest
	if c := f.place.Commit; c != nil {
		previous, digest = c.Hash(), c.RecordsDigest
	}
	if e.Commit.Previous != previous {
		return &journal.ChainError{Stream: f.place.Stream, Previous: f.place.CommitAt, Seq: e.Seq}
	}
	for _, record := range e.Records {
		digest = link(digest, record)
	}
	if digest != e.Commit.RecordsDigest {
		return damagef("stream %s, sequence %d: the records are not those that their COMMIT names; restore the stream from a backup", f.place.Stream, e.Seq)
	}
	f.place.Commit, f.place.CommitAt = e.Commit, e.Seq
	return nil
}

// link answers the digest over all records up to this one.
func link(before revision.Digest, record []byte) revision.Digest {
	return sha256.Sum256(append(slices.Clone(before[:]), record...))
}

// put makes r the last record of its effect.
func (f *folding) put(seq uint64, r *effect.Record) error {
	prev, err := readEffect(f.effects, r.Key)
	if err != nil {
		return err
	}
	if err := ledger.Follow(prev, r); err != nil {
		return damagef("stream %s, sequence %d: effect %s: %v; restore the stream from a backup", f.place.Stream, seq, r.Key, err)
	}
	data, err := r.Encode()
	if err != nil {
		return fmt.Errorf("effect %s: %w", r.Key, err)
	}
	if prev != nil && prev.State != r.State {
		if err := f.states.Delete(stateKey(prev.State, r.Key)); err != nil {
			return err
		}
	}
	if prev == nil || prev.State != r.State {
		f.counts[r.State]++
		if prev != nil {
			f.counts[prev.State]--
		}
		if err := f.states.Put(stateKey(r.State, r.Key), nil); err != nil {
			return err
		}
	}
	if prev == nil && r.Covered != nil {
		if err := f.sessions.Put(append(sessionPrefix(&r.Identity), r.Key[:]...), nil); err != nil {
			return err
		}
	}
	if r.LastAttempt > 0 && (prev == nil || prev.LastAttempt != r.LastAttempt) {
		if err := f.attempts.Put(r.Key[:], binary.BigEndian.AppendUint32(nil, r.LastAttempt)); err != nil {
			return err
		}
	}
	if err := f.number(r); err != nil {
		return err
	}
	f.applied.effects = append(f.applied.effects, r)
	return f.effects.Put(r.Key[:], data)
}

// number gives an effect its ordinal under the generation that it is bound to now.
func (f *folding) number(r *effect.Record) error {
	if r.Bound == nil || r.Correction != nil {
		return nil
	}
	was, err := readOrdinal(f.ordinals, r.Key)
	if err != nil || was.Generation == r.Bound.PolicyGeneration {
		return err
	}
	if f.place.Made == nil {
		f.place.Made = map[string]int{}
	}
	made := madeKey(r.Identity.EffectType, r.Bound.PolicyGeneration)
	value, err := json.Marshal(ordinal{Generation: r.Bound.PolicyGeneration, N: f.place.Made[made]})
	if err != nil {
		return err
	}
	f.place.Made[made]++
	return f.ordinals.Put(r.Key[:], value)
}

// ordinal says which effect of its type and generation one is, from 0.
type ordinal struct {
	Generation string `json:"generation"`
	N          int    `json:"n"`
}

func madeKey(effectType, generation string) string { return effectType + " " + generation }

func readOrdinal(b *checkpoint.Bucket, key effect.EffectKey) (o ordinal, err error) {
	value, err := b.Get(key[:])
	if err != nil || value == nil {
		return o, err
	}
	return o, json.Unmarshal(value, &o)
}

func readEffect(b *checkpoint.Bucket, key effect.EffectKey) (*effect.Record, error) {
	value, err := b.Get(key[:])
	if err != nil || value == nil {
		return nil, err
	}
	r, err := effect.Decode(bytes.Clone(value))
	if err != nil {
		return nil, fmt.Errorf("%w: effect %s: %w", checkpoint.ErrDamaged, key, err)
	}
	return r, nil
}

// stateKey is where an effect stands in the index of states.
func stateKey(s effect.State, key effect.EffectKey) []byte {
	return append([]byte{byte(slices.Index(effect.States(), s))}, key[:]...)
}

func stateOf(key []byte) effect.State {
	if states := effect.States(); len(key) > 0 && int(key[0]) < len(states) {
		return states[key[0]]
	}
	return effect.None
}

// sessionPrefix is what the sessions of one business subject share.
func sessionPrefix(id *effect.Identity) []byte {
	var text []byte
	for _, part := range []string{id.Stream, id.EffectType, id.Key, id.Subject} {
		text = binary.AppendUvarint(text, uint64(len(part)))
		text = append(text, part...)
	}
	sum := sha256.Sum256(text)
	return sum[:]
}

// effect answers the last record of a key, nil if there is none.
func (v *view) effect(key effect.EffectKey) (r *effect.Record, err error) {
	err = v.store.View(func(tx *checkpoint.Tx) error {
		effects, err := tx.Bucket(effectsBucket)
		if err == nil {
			r, err = readEffect(effects, key)
		}
		return err
	})
	return r, err
}

// attempts answers the number of the last attempt of an effect, 0 if there is none.
func (v *view) attempts(key effect.EffectKey) (n uint32, err error) {
	err = v.store.View(func(tx *checkpoint.Tx) error {
		b, err := tx.Bucket(attemptsBucket)
		if err != nil {
			return err
		}
		value, err := b.Get(key[:])
		if len(value) == 4 {
			n = binary.BigEndian.Uint32(value)
		}
		return err
	})
	return n, err
}

// ordinal answers which effect of a type and generation a key is; a new one comes behind
// all that were made.
func (v *view) ordinal(key effect.EffectKey) (o ordinal, err error) {
	err = v.store.View(func(tx *checkpoint.Tx) error {
		b, err := tx.Bucket(ordinalsBucket)
		if err == nil {
			o, err = readOrdinal(b, key)
		}
		return err
	})
	return o, err
}

// inState answers keys of effects in a state behind after (zero: from the first), in
// order, at most limit.
func (v *view) inState(s effect.State, after effect.EffectKey, limit int) (keys []effect.EffectKey, err error) {
	from := stateKey(s, after)
	err = v.store.View(func(tx *checkpoint.Tx) error {
		states, err := tx.Bucket(statesBucket)
		if err != nil {
			return err
		}
		return states.Range(from, nil, func(key, _ []byte) (bool, error) {
			if len(keys) == limit || key[0] != from[0] {
				return false, nil
			}
			if at := effect.EffectKey(key[1:]); at != after {
				keys = append(keys, at)
			}
			return true, nil
		})
	})
	return keys, err
}

// each visits the effects behind a key (zero: from the first) in order. The value is valid
// only inside fn.
func (v *view) each(after effect.EffectKey, fn func(key effect.EffectKey, value []byte) (bool, error)) error {
	return v.store.View(func(tx *checkpoint.Tx) error {
		effects, err := tx.Bucket(effectsBucket)
		if err != nil {
			return err
		}
		return effects.Range(after[:], nil, func(key, value []byte) (bool, error) {
			if bytes.Equal(key, after[:]) {
				return true, nil
			}
			return fn(effect.EffectKey(key), value)
		})
	})
}

// sessionsOf answers the keys of session effects of one business subject.
func (v *view) sessionsOf(id *effect.Identity) (keys []effect.EffectKey, err error) {
	prefix := sessionPrefix(id)
	err = v.store.View(func(tx *checkpoint.Tx) error {
		b, err := tx.Bucket(sessionsBucket)
		if err != nil {
			return err
		}
		return b.Prefix(prefix, func(key, _ []byte) (bool, error) {
			keys = append(keys, effect.EffectKey(key[len(prefix):]))
			return true, nil
		})
	})
	return keys, err
}

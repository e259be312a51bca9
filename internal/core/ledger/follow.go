package ledger

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// Follow answers why next may not follow prev (nil = nothing) in a journal, or nil. It is
// what a replay and a verification ask: it knows the transitions and what no record may
// change, and none of the facts by which a step was once decided.
func Follow(prev, next *effect.Record) error {
	if err := next.Validate(); err != nil {
		return err
	}
	if prev == nil {
		prev = new(effect.Record)
	}
	for _, check := range []func(prev, next *effect.Record) string{brokenOrder, brokenTransition, brokenSend, brokenExit, brokenFrozen, brokenTrail} {
		if rule := check(prev, next); rule != "" {
			return fmt.Errorf("step %d of effect %s (%s): %s; the journal is damaged or was written by something else", next.Step.N, next.Key, next.Step.Name, rule)
		}
	}
	return nil
}

// Replay answers the last of the records of one key, after it checked that each may
// follow the one before; nil if there is none.
func Replay(records []*effect.Record) (*effect.Record, error) {
	var last *effect.Record
	for _, next := range records {
		if err := Follow(last, next); err != nil {
			return nil, err
		}
		last = next
	}
	return last, nil
}

func brokenOrder(prev, next *effect.Record) string {
	switch {
	case next.Step.N != prev.Step.N+1:
		return fmt.Sprintf("it stands after step %d", prev.Step.N)
	case next.Step.From != prev.State:
		return fmt.Sprintf("it comes from %q and stands after %q", next.Step.From, prev.State)
	case prev.Step.N > 0 && (next.Key != prev.Key || next.Identity != prev.Identity):
		return "it is another effect"
	}
	return ""
}

func brokenTransition(prev, next *effect.Record) string {
	i := slices.IndexFunc(table, func(t Transition) bool { return t.Name == next.Step.Name })
	switch {
	case i < 0:
		return "there is no such transition"
	case !table[i].Moves(prev.State, next.State):
		return fmt.Sprintf("it does not lead from %q to %q", prev.State, next.State)
	case !slices.Contains(table[i].By, next.Step.By):
		return fmt.Sprintf("the %s may not make it", next.Step.By)
	case next.LastAttempt != prev.LastAttempt && !opens(next.Step.Name):
		return "it opens no attempt, and one was added"
	}
	return ""
}

// opens tells whether a transition adds an attempt.
func opens(name string) bool {
	return slices.Contains([]string{"dispatch", "resend", "recover", "recover-manual"}, name)
}

// brokenSend checks an attempt that was opened: that it sent what the record holds, was
// approved where a rule wanted that, and may have been sent a second time.
func brokenSend(prev, next *effect.Record) string {
	if next.State != effect.Dispatching || prev.State == effect.Dispatching {
		return ""
	}
	a := &next.Attempts[len(next.Attempts)-1]
	switch again := prev.State == effect.Unknown; {
	case a.N != prev.LastAttempt+1 || a.Recovered || a.Resend != again:
		return "its attempt is not the next one"
	case a.Digest != next.Request.PayloadDigest || PayloadDigest(next.Identity.EffectType, next.Request) != a.Digest:
		return "it sent other bytes than it holds"
	case again && (a.SendBy >= next.ResendDeadline || resends(next) > MaxResends || a.At < quietFrom(prev)):
		return "it was sent again too late, too often or too early"
	case again && (anyRecovered(next) || prev.Conflict != "" || prev.CompensationPending):
		return "it was sent again against what was known"
	case len(next.Clash) > 0 || next.MergedInto != nil:
		return "it was sent though another session or effect stands for it"
	}
	return unapproved(prev, next, a)
}

func unapproved(prev, next *effect.Record, a *effect.Attempt) string {
	if next.Airlock == "" {
		return ""
	}
	consent := next.Approval
	if consent == nil || consent.Void || consent.Digest != a.Digest || consent.Attempt != a.N || prev.Approval.Attempt != 0 {
		return "it was sent without an unused approval of its payload"
	}
	return ""
}

// brokenExit checks that what is not known is settled by evidence alone.
func brokenExit(prev, next *effect.Record) string {
	settles := slices.Contains([]effect.State{effect.Acked, effect.Reconciled, effect.Rejected}, next.State)
	switch ev := next.Step.Evidence; {
	case !settles || next.State == prev.State || !slices.Contains(inDoubt, prev.State) && !slices.Contains(closed, prev.State):
		return ""
	case ev == nil:
		return "it was settled without evidence"
	case next.State != effect.Rejected && ev.Source != effect.FromOperator && ev.Key != next.Key:
		return "it was settled by evidence of another effect"
	case next.State == effect.Rejected && prev.State == effect.Unknown && next.Absences < MinAbsences:
		return "it was rejected before it was absent often enough"
	}
	return ""
}

// brokenFrozen checks what stays as it was from the first possible byte on.
func brokenFrozen(prev, next *effect.Record) string {
	sent := prev.State != effect.None && !NeverSent(prev)
	switch {
	case sent && !reflect.DeepEqual(prev.Request, next.Request):
		return "what may have been sent changed"
	case sent && !reflect.DeepEqual(prev.Bound, next.Bound):
		return "the revision that it was sent for changed"
	case prev.FirstPossibleSendAt != 0 && next.FirstPossibleSendAt != prev.FirstPossibleSendAt:
		return "firstPossibleSendAt moved"
	case sent && next.ResendDeadline > prev.ResendDeadline:
		return "resendDeadline moved on"
	case prev.Settled != effect.None && next.Settled != prev.Settled:
		return "what evidence made of it changed"
	}
	return ""
}

// brokenTrail checks what only grows.
func brokenTrail(prev, next *effect.Record) string {
	switch {
	case next.LastAttempt < prev.LastAttempt:
		return "lastAttempt went back"
	case !keepsAttempts(prev, next):
		return "an attempt that may have been sent is gone, or changed after its end"
	case next.Corrections < prev.Corrections || next.Corrections > prev.Corrections+1:
		return "corrections are counted one by one"
	case prev.Approval != nil && (next.Approval == nil || next.Approval.Sequence < prev.Approval.Sequence):
		return "an older approval came back"
	case prev.MergedInto != nil && !reflect.DeepEqual(prev.MergedInto, next.MergedInto):
		return "mergedInto changed"
	case prev.Step.N > 0 && !sameCorrection(prev, next):
		return "the correction that it carries out changed"
	case prev.Covered != nil && (next.Covered == nil || union(*prev.Covered, *next.Covered) != *next.Covered):
		return "the covered interval shrank"
	case prev.Conflict != "" && next.Conflict == "":
		return "a conflict is gone"
	}
	return ""
}

// sameCorrection tells whether next carries out what prev did. Until it may have been sent,
// what it makes follows the newest revision.
func sameCorrection(prev, next *effect.Record) bool {
	a, b := prev.Correction, next.Correction
	if a == nil || b == nil || !NeverSent(prev) || !NeverSent(next) {
		return reflect.DeepEqual(a, b)
	}
	return a.Of == b.Of && a.Number == b.Number && a.Mode == b.Mode
}

// keepsAttempts tells whether every closed attempt of prev is in next as it was. Only the
// open one may go, if it was provably not sent. An answer that an attempt ran may come
// after its end.
func keepsAttempts(prev, next *effect.Record) bool {
	for i := range prev.Attempts {
		a := prev.Attempts[i]
		j := slices.IndexFunc(next.Attempts, func(b effect.Attempt) bool { return b.N == a.N })
		switch {
		case j < 0 && !a.Open():
			return false
		case j >= 0 && !keeps(&a, &next.Attempts[j]):
			return false
		}
	}
	return true
}

func keeps(a, b *effect.Attempt) bool {
	same := *a
	same.End, same.EndAt = b.End, b.EndAt
	return same == *b && (a.Open() || a.End == b.End && a.EndAt == b.EndAt || b.End == effect.Executed)
}

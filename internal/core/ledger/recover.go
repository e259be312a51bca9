package ledger

import (
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Recover says that the effector's dispatch file has an attempt that the journal has not:
// it may have been sent, and the key's outcome is unknown. Whoever could still send it is
// gone, since the file is locked by its owner.
type Recover struct {
	Key      effect.EffectKey
	Identity effect.Identity  // read where the journal has no record of the key
	Covered  *revision.Window // like Identity
	Attempt  uint32
	Epoch    uint64
	Digest   revision.Digest
	Adapter  Adapter // for its timeout

	// Judgement is like Identity: what a revision makes of the key. Where it gives the
	// bytes that the file has the digest of, it is known what was sent, and the provider
	// can be asked for it.
	Judgement *Judgement
}

func (Recover) actor() effect.Actor { return effect.Effector }

// What ran is not thrown into doubt again: from UNKNOWN there is a way to another send,
// and from ACKED there must be none.
var (
	recoverable = []effect.State{
		effect.None, effect.Prepared, effect.Held, effect.Voided, effect.Dispatching, effect.Unknown, effect.Rejected,
	}
	recovering = []Transition{
		rule("recover", recoverable, effect.Unknown, byEffector, nil, unheardOf, recoverAttempt),
		rule("recover-manual", manual, effect.None, byEffector, nil, unheardOf, recoverAttempt),
	}
)

func unheardOf(c *change, e Recover) Refusal {
	switch {
	case e.Attempt <= c.r.LastAttempt:
		return JournalKnows
	case c.r.State != effect.None && e.Key != c.r.Key:
		return KeyOfAnother
	}
	return ""
}

// recoverAttempt adds the attempt with the latest times that it can have: its process is
// gone, so no byte of it goes out from now on.
func recoverAttempt(c *change, e Recover) {
	next := c.next
	if c.r.State == effect.None {
		next.Key, next.Identity, next.Covered = e.Key, e.Identity, copied(e.Covered)
		if j := e.Judgement; j != nil && j.Holds && PayloadDigest(e.Identity.EffectType, &j.Request) == e.Digest {
			bind(next, j)
		}
	}
	end(next, 0, "", c.now)
	next.Attempts = append(next.Attempts, effect.Attempt{
		N: e.Attempt, Epoch: e.Epoch, Digest: e.Digest, At: c.now, SendBy: c.now, Timeout: e.Adapter.Timeout,
		Recovered: true, End: effect.Ambiguous, EndAt: c.now,
	})
	next.LastAttempt = e.Attempt
	if next.FirstPossibleSendAt == 0 {
		next.FirstPossibleSendAt = c.now
	}
	next.ResendDeadline = 0
	next.Absences, next.LastAbsence = 0, 0
	if next.Request != nil {
		next.CompensationPending = next.Latest.Desire != made(next)
		if next.Request.PayloadDigest != e.Digest {
			next.Conflict = conflictFile
		}
	}
	next.Step.Evidence = &effect.Evidence{Source: effect.FromFile, Attempt: e.Attempt, Key: e.Key, Digest: e.Digest}
}

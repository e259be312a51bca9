// Package dispatchfile keeps the effector's dispatch file: which attempts of which effects
// this machine may have sent. An attempt is in the file, on disk, before its first byte goes
// out, so that an effects journal that lost its tail cannot make anything be sent twice.
//
// The file is that of one partition, locked by its owner. It is built on internal/checkpoint
// and answers that package's errors: ErrLocked, ErrDamaged, ErrForeign, ErrNewer, ErrOlder.
// It is no cache: a damaged file is left where it is.
package dispatchfile

import (
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Entry is one attempt.
type Entry struct {
	Key     effect.EffectKey
	Attempt uint32
	Epoch   uint64          // of the owner that made it
	Digest  revision.Digest // of the payload
	Seq     uint64          // of its DISPATCHING record in the effects journal
}

// Identity is the effects journal that the entries speak of.
type Identity struct {
	Stream  string
	Created int64 // Unix nanoseconds
}

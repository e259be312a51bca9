package projector

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// damage is what halts a partition: a journal says what an undamaged system cannot say.
type damage struct{ text string }

func (d *damage) Error() string { return d.text }

func damagef(format string, args ...any) error { return &damage{fmt.Sprintf(format, args...)} }

// halts tells whether err must stop the partition for good; everything else is retried.
func halts(err error) bool {
	var d *damage
	return errors.As(err, &d) || errors.Is(err, journal.ErrIdentity) || errors.Is(err, journal.ErrChain) || errors.Is(err, journal.ErrBatch) ||
		errors.Is(err, checkpoint.ErrForeign) || errors.Is(err, checkpoint.ErrNewer)
}

// follows checks that the COMMIT at seq names the one before as its predecessor.
func follows(before place, seq uint64, c *revision.Commit) error {
	var previous revision.Digest
	if before.Commit != nil {
		previous = before.Commit.Hash()
	}
	if c.Previous != previous {
		return &journal.ChainError{Stream: before.Stream, Previous: before.Fence, Seq: seq}
	}
	return nil
}

// retires reads a CONTROL record of a fence: {"retire":true} retires the generation.
func retires(control []byte) (bool, error) {
	var c struct {
		Retire bool `json:"retire"`
	}
	err := json.Unmarshal(control, &c)
	return c.Retire, err
}

package effector

import (
	"errors"
	"fmt"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/journal"
)

// damage is what halts a partition: a journal says what an undamaged system cannot say.
type damage struct{ text string }

func (d *damage) Error() string { return d.text }

func damagef(format string, args ...any) error { return &damage{fmt.Sprintf(format, args...)} }

// halts tells whether err must stop the partition for good; everything else is retried.
func halts(err error) bool {
	var d *damage
	if errors.As(err, &d) {
		return true
	}
	for _, fatal := range []error{
		journal.ErrIdentity, journal.ErrChain, journal.ErrBatch,
		checkpoint.ErrForeign, checkpoint.ErrNewer,
	} {
		if errors.Is(err, fatal) {
			return true
		}
	}
	return false
}

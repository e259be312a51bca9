package windower

import (
	"errors"
	"fmt"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/journal"
)

// damage is what halts a partition: a journal says what an undamaged system cannot say,
// or asks for what this version cannot do.
type damage struct {
	text  string
	cause error
}

func (d *damage) Error() string { return d.text }

func (d *damage) Unwrap() error { return d.cause }

// damagef makes a damage; a %w in format keeps the cause.
func damagef(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &damage{err.Error(), errors.Unwrap(err)}
}

// halts tells whether err must stop the partition for good; everything else is retried.
func halts(err error) bool {
	var d *damage
	return errors.As(err, &d) || errors.Is(err, journal.ErrIdentity) || errors.Is(err, journal.ErrChain) ||
		errors.Is(err, journal.ErrTooLarge) ||
		errors.Is(err, checkpoint.ErrForeign) || errors.Is(err, checkpoint.ErrNewer)
}

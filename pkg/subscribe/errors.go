package subscribe

import (
	"errors"
	"fmt"

	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Errors of this package; use errors.Is.
var (
	// ErrNoGeneration: the job has no canonical generation yet. Returned by Open.
	ErrNoGeneration = errors.New("job has no canonical generation")
	// ErrToken: the resume token is none, or of another stream, job or key. Returned by Open.
	ErrToken = errors.New("resume token does not fit")
	// ErrRecreated: the revisions stream is not the one the subscription began with.
	ErrRecreated = errors.New("revisions stream was replaced")
	// ErrDamaged: the revisions stream says what an undamaged one cannot say.
	ErrDamaged = errors.New("revisions stream is damaged")
	// ErrSwitched: the canonical alias names another generation. A *SwitchedError tells which.
	ErrSwitched = errors.New("canonical generation changed")
)

// SwitchedError tells that readers of the job now see another generation.
type SwitchedError struct {
	Job      string
	From, To int // generations
}

// Error says which generations, and what to do.
func (e *SwitchedError) Error() string {
	return fmt.Sprintf("%v from %s to %s; open the subscription again without a resume token and replace what the old generation gave",
		ErrSwitched, policy.PolicyGeneration(e.Job, e.From), policy.PolicyGeneration(e.Job, e.To))
}

// Is makes errors.Is(err, ErrSwitched) true.
func (e *SwitchedError) Is(target error) bool { return target == ErrSwitched }

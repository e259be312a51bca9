package effectlog

import (
	"fmt"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// Span is how many sequences after its author's look at the journal a record may land.
const Span = 1 << 16

// Stamp is who wrote a record, and what keeps a second copy of it from counting.
type Stamp struct {
	ID     string      `json:"id"`    // unique: 8 to 64 of A-Z a-z 0-9 _ -
	Basis  uint64      `json:"basis"` // the journal's last sequence when it was written
	Who    string      `json:"who"`
	Reason string      `json:"reason"`
	At     effect.Time `json:"at"` // on the author's clock; nothing is decided by it
}

// Late tells whether a record with this stamp is void at seq, because it landed too far
// behind its author's look at the journal. Its author writes it again with a new stamp.
func (s *Stamp) Late(seq uint64) bool { return seq > s.Basis && seq-s.Basis > Span }

func (s *Stamp) validate() error {
	if len(s.ID) < 8 || len(s.ID) > 64 || !isToken(s.ID) {
		return fmt.Errorf("id: want 8 to 64 of A-Z a-z 0-9 _ -")
	}
	if s.At <= 0 || s.At > effect.MaxTime {
		return fmt.Errorf("at: missing")
	}
	if err := checkText("who", s.Who, effect.MaxName); err != nil {
		return err
	}
	return checkText("reason", s.Reason, effect.MaxReason)
}

package effectlog

import (
	"fmt"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// CommandSchema names the JSON form of a COMMAND record.
const CommandSchema = "effectCommand.v1"

// Command is what an operator asks of the owner: exactly one act. It changes nothing by
// itself; the owner judges it and answers with a Done.
type Command struct {
	Schema string           `json:"schema"`
	Stamp  Stamp            `json:"stamp"`
	Key    effect.EffectKey `json:"effectKey,omitzero"` // none for Recover, which is of the partition
	Act    Act              `json:"act"`

	Approve *Approve `json:"approve,omitempty"` // with Act Approve only
	Resolve *Resolve `json:"resolve,omitempty"` // with Act Resolve only
}

// Act is what a command asks for.
type Act string

// Acts.
const (
	ActApprove     Act = "approve"
	ActVoid        Act = "void"
	ActHold        Act = "hold"
	ActReconcile   Act = "reconcile" // ask the provider now
	ActResolve     Act = "resolve"   // what an operator found out
	ActWaive       Act = "waive"
	ActCompensated Act = "compensated" // the correction was carried out outside
	ActRecover     Act = "recover"     // take in what only the dispatch file knows, then open
)

// Acts answers every act.
func Acts() []Act {
	return []Act{ActApprove, ActVoid, ActHold, ActReconcile, ActResolve, ActWaive, ActCompensated, ActRecover}
}

// Approve is consent to one dispatch of the payload with the digest that was shown.
type Approve struct {
	Digest  revision.Digest `json:"digest"`
	Expires effect.Time     `json:"expires"`
}

// Resolve is an operator's finding.
type Resolve struct {
	Applied  bool            `json:"applied"`
	Ref      string          `json:"ref,omitempty"` // the provider's own id
	Evidence revision.Digest `json:"evidence"`      // of what was recorded
}

// Validate answers which rule the record breaks, or nil.
func (c *Command) Validate() error {
	if err := c.validate(); err != nil {
		return fmt.Errorf("%s: %w", CommandSchema, err)
	}
	return nil
}

func (c *Command) validate() error {
	if c.Schema != CommandSchema {
		return fmt.Errorf("schema: want %s", CommandSchema)
	}
	if err := c.Stamp.validate(); err != nil {
		return err
	}
	if !c.Act.known() {
		return fmt.Errorf("act: unknown %.32q", string(c.Act))
	}
	if c.Key.IsZero() != (c.Act == ActRecover) {
		return fmt.Errorf("effectKey: wanted for every act but %s", ActRecover)
	}
	if (c.Approve != nil) != (c.Act == ActApprove) || (c.Resolve != nil) != (c.Act == ActResolve) {
		return fmt.Errorf("approve and resolve: wanted with their own act alone")
	}
	if c.Approve != nil && (c.Approve.Digest.IsZero() || c.Approve.Expires <= 0 || c.Approve.Expires > effect.MaxTime) {
		return fmt.Errorf("approve: digest and expires are wanted")
	}
	if c.Resolve != nil {
		return c.Resolve.validate()
	}
	return nil
}

func (r *Resolve) validate() error {
	if r.Evidence.IsZero() {
		return fmt.Errorf("resolve: the digest of the evidence is missing")
	}
	if r.Ref == "" {
		return nil
	}
	return checkText("ref", r.Ref, effect.MaxName)
}

func (a Act) known() bool {
	for _, act := range Acts() {
		if a == act {
			return true
		}
	}
	return false
}

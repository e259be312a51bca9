package effectlog

import (
	"fmt"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// ControlSchema names the JSON form of a CONTROL record.
const ControlSchema = "effectControl.v1"

// Control moves a gate, an active version or an alias: exactly one of the three.
type Control struct {
	Schema   string    `json:"schema"`
	Stamp    Stamp     `json:"stamp"`
	Gate     *Gate     `json:"gate,omitempty"`
	Activate *Activate `json:"activate,omitempty"`
	Alias    *Alias    `json:"alias,omitempty"`
}

// Gate opens or closes a scope for sends. Queries, receipts and late answers go on.
type Gate struct {
	Scope  Scope `json:"scope"` // not a switch's: only an alias moves that
	Closed bool  `json:"closed"`
}

// Activate makes a policy version, with the adapter version that it names, the one of its
// effect type.
type Activate struct {
	EffectType    string          `json:"effectType"`
	Policy        string          `json:"policy"` // "<name>@<version>"
	PolicyDigest  revision.Digest `json:"policyDigest"`
	Adapter       string          `json:"adapter"` // "<name>@<version>"
	AdapterDigest revision.Digest `json:"adapterDigest"`
}

// Alias says which generation of a job is canonical from now on. One whose epoch is not
// above the job's last is void. While Switching the job's switch gate is closed.
type Alias struct {
	Job       string `json:"job"`
	Epoch     uint64 `json:"epoch"`     // from 1
	Canonical int    `json:"canonical"` // from 1
	Switching bool   `json:"switching"`
}

// Validate answers which rule the record breaks, or nil.
func (c *Control) Validate() error {
	if err := c.validate(); err != nil {
		return fmt.Errorf("%s: %w", ControlSchema, err)
	}
	return nil
}

func (c *Control) validate() error {
	if c.Schema != ControlSchema {
		return fmt.Errorf("schema: want %s", ControlSchema)
	}
	if err := c.Stamp.validate(); err != nil {
		return err
	}
	switch {
	case c.Gate != nil && c.Activate == nil && c.Alias == nil:
		return c.Gate.validate()
	case c.Activate != nil && c.Gate == nil && c.Alias == nil:
		return c.Activate.validate()
	case c.Alias != nil && c.Gate == nil && c.Activate == nil:
		return c.Alias.validate()
	}
	return fmt.Errorf("want exactly one of gate, activate and alias")
}

func (g *Gate) validate() error {
	if _, err := ParseScope(string(g.Scope)); err != nil {
		return err
	}
	if len(g.Scope) > len(switchPrefix) && g.Scope[:len(switchPrefix)] == switchPrefix {
		return fmt.Errorf("scope: the gate of a switch moves with the alias alone")
	}
	if g.Scope == Unreadable && g.Closed {
		return fmt.Errorf("scope: %s is closed by a record that cannot be read, and only opened by an operator", Unreadable)
	}
	return nil
}

func (a *Activate) validate() error {
	if err := checkName("effectType", a.EffectType); err != nil {
		return err
	}
	if err := checkVersion("policy", a.Policy); err != nil {
		return err
	}
	if err := checkVersion("adapter", a.Adapter); err != nil {
		return err
	}
	if a.PolicyDigest.IsZero() || a.AdapterDigest.IsZero() {
		return fmt.Errorf("policyDigest and adapterDigest: missing")
	}
	return nil
}

func (a *Alias) validate() error {
	if a.Epoch == 0 || a.Canonical < 1 {
		return fmt.Errorf("epoch and canonical: want numbers from 1")
	}
	return checkName("job", a.Job)
}

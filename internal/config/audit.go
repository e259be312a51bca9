package config

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/user"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// Audit writes one record of a mutating command on a business stream: who did what, why,
// and the command's own details. When is the time at which the journal took it.
func Audit(ctx context.Context, js jetstream.JetStream, bs, verb, reason string, details any) error {
	record, err := json.Marshal(struct {
		Who     string `json:"who"`
		Verb    string `json:"verb"`
		Reason  string `json:"reason,omitempty"`
		Details any    `json:"details"`
	}{Operator(), verb, reason, details})
	if err != nil {
		return fmt.Errorf("audit record: %w", err)
	}
	if _, err := js.Publish(ctx, subject.Audit(bs, verb), record, jetstream.WithExpectStream(subject.AuditStream)); err != nil {
		return fmt.Errorf("audit record of %s: %w", verb, err)
	}
	return nil
}

// Operator names who runs this process: user@host.
func Operator() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

package arch

import "testing"

// The rules themselves are tested: a check that cannot fail checks nothing.
func TestRulesRefuseWhatTheyAreFor(t *testing.T) {
	refused := []struct{ dir, path string }{
		{"pkg/envelope", module + "internal/core/window"},
		{"pkg/envelope", "github.com/nats-io/nats.go"},
		{"pkg/subscribe", "go.etcd.io/bbolt"},
		{"internal/core/window", module + "internal/journal"},
		{"internal/core/window", module + "pkg/subscribe"},
		{"internal/core/window", "context"},
		{"internal/core/window", "sync"},
		{"internal/core/window", "github.com/rs/zerolog"},
		{"internal/journal", module + "services/ingest"},
		{"internal/journal", "github.com/nats-io/nats-server/v2/server"},
		{"internal/verify/oracle", module + "internal/core/window"},
		{"services/ingest", module + "services/windower"},
		{"services/ingest", "go.etcd.io/bbolt"},
		{"services/ingest", module + "cmd/tidemark"},
		{"internal/checkpoint", "github.com/nats-io/nats.go"},
		{"consumers/webhook", module + "internal/core/window"},
		{"consumers/webhook", module + "internal/journal"},
		{"consumers/webhook", module + "services/projector"},
		{"consumers/webhook", "go.etcd.io/bbolt"},
		{"services/effector", module + "consumers/webhook"},
	}
	for _, c := range refused {
		own, ours := cutModule(c.path)
		if forbidden(c.dir, own, c.path, ours) == "" {
			t.Errorf("%s may import %s", c.dir, c.path)
		}
	}
	allowed := []struct{ dir, path string }{
		{"pkg/policy", "github.com/goccy/go-yaml"},
		{"pkg/subscribe", "github.com/nats-io/nats.go/jetstream"},
		{"internal/core/window", module + "pkg/envelope"},
		{"internal/checkpoint", "go.etcd.io/bbolt"},
		{"services/windower", module + "internal/core/window"},
		{"cmd/tidemark", module + "services/windower"},
		{"consumers/webhook", module + "pkg/subscribe"},
		{"consumers/webhook", module + "internal/netguard"},
		{"consumers/webhook", "github.com/nats-io/nats.go"},
		{"cmd/tidemark", module + "consumers/webhook"},
	}
	for _, c := range allowed {
		own, ours := cutModule(c.path)
		if why := forbidden(c.dir, own, c.path, ours); why != "" {
			t.Errorf("%s may not import %s: %s", c.dir, c.path, why)
		}
	}
}

func cutModule(path string) (own string, ours bool) {
	if len(path) > len(module) && path[:len(module)] == module {
		return path[len(module):], true
	}
	return path, false
}

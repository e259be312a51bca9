package effector

import (
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/providersim"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// dropped has an hour's first request dropped by the provider, which makes it UNKNOWN.
func (w *world) dropped(hour int) effect.EffectKey {
	w.t.Helper()
	mode, err := providersim.ParseMode("drop")
	must(w.t, err)
	key := w.keyOf("eu-west", hour)
	must(w.t, w.sim.Set(providersim.Rule{Mode: mode, Key: key.String(), Nth: 1}))
	return key
}

// Resends come in the order of attempts: once a later one was sent again, this one had its
// chance.
func TestAResendAgainstWhatIsKnownSendsNothing(t *testing.T) {
	for name, change := range map[string]func(w *world) *acceptor{
		"a revision contradicts": func(w *world) *acceptor {
			w.sold("eu-west", 0, 40)
			return w.generation(1, 0)
		},
		"the amount is another": func(w *world) *acceptor {
			w.sold("eu-west", 0, 300)
			return w.generation(1, 0)
		},
		"the alias was rolled back": func(w *world) *acceptor {
			w.promote(2, 1, 2)
			w.walked(2)
			return w.generation(2, 0) // has no such hour
		},
		"the url moved": func(w *world) *acceptor {
			_, text, _ := strings.Cut(documents, "kind: Adapter")
			text = "apiVersion: tidemark/v1\nkind: Adapter" + text
			moved := strings.Replace(w.sim.URL(), "127.0.0.1", "localhost", 1)
			w.apply(testContext(w.t), strings.NewReplacer("NAME-api@1", w.name+"-api@2", "reward@1", "reward@2", "ADAPTER", resendable, "POLICY", anyAge,
				"NAME", w.name, "URL", moved).Replace(text))
			return w.generation(1, 0)
		},
		"nothing": func(w *world) *acceptor { return w.generation(1, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, terms{adapter: resendable})
			w.addGeneration(2, "{tumbling: 1h, zone: UTC}")
			n := w.node(t.TempDir()).start()
			key, beacon := w.dropped(0), w.dropped(1)
			w.sold("eu-west", 0, 250)
			w.await(key, effect.Unknown)
			w.gate(effectlog.Global, true) // so that the change is there first
			a := change(w)
			n.learn(w.library())
			a.accept(a.next("eu-west", hourOf(1), 250, nil))
			w.await(beacon, effect.Prepared)
			w.gate(effectlog.Global, false)
			w.await(beacon, effect.Acked)
			want := 1
			if name == "nothing" {
				w.await(key, effect.Acked)
				want = 2
			}
			if got := w.sim.Requests(key.String()); got != want {
				t.Errorf("%d requests, want %d; it is %s", got, want, w.now(key).State)
			}
			w.executed(key, want-1)
			w.executed(beacon, 1)
		})
	}
}

const resendable = "idempotency: {header: Idempotency-Key, retention: 24h, onBodyMismatch: error}\nretry: {mode: auto, first: 50ms, most: 50ms}\n"

package effector

import (
	"crypto/sha256"
	"fmt"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// traceParent answers the W3C trace context of an attempt. The trace is the effect's, so
// that every attempt and question of it stand in one; the span is the attempt's.
func traceParent(key effect.EffectKey, attempt uint32) string {
	span := sha256.Sum256(fmt.Appendf(key[:len(key):len(key)], "attempt %d", attempt))
	return fmt.Sprintf("00-%x-%x-01", key[:16], span[:8])
}

package ledger

import (
	"strconv"
	"strings"

	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

const (
	tagPayload    = "effectPayload.v1"
	tagCompensate = "compensate.v1"
	tagAdjust     = "adjust.v1"
)

// PayloadDigest answers what an approval binds and a dispatch compares: SHA-256 over the
// exact bytes of the payload, the effect type, the adapter's name and version, and the
// scope. Nothing is parsed or rendered again.
func PayloadDigest(effectType string, q *effect.Request) revision.Digest {
	return digest(identity.H(tagPayload,
		effectType, q.Adapter, q.Scope.URL, q.Scope.Account, q.Scope.Environment, q.Payload))
}

// Key answers the key of an effect: of a type, a window and a subject, never of a
// revision or generation.
func Key(id *effect.Identity) effect.EffectKey {
	return effect.EffectKey(digest(identity.Effect(id.EffectType, id.LogicalWindowID, id.Subject)))
}

// CorrectionKey answers the key of the effect that carries out a correction of another.
func CorrectionKey(mode effect.Mode, of effect.EffectKey, number uint32) effect.EffectKey {
	tag := tagCompensate
	if mode == effect.Adjust {
		tag = tagAdjust
	}
	return effect.EffectKey(digest(identity.H(tag, of.String(), strconv.FormatUint(uint64(number), 10))))
}

// digest reads the hex that identity answers.
func digest(hex string) revision.Digest {
	d, err := revision.ParseDigest(hex)
	if err != nil {
		panic("ledger: identity answered no digest: " + err.Error())
	}
	return d
}

// equalAmount compares decimals by value: 12930.5 is 12930.50. What is no decimal is
// compared as text.
func equalAmount(a, b string) bool {
	x, okX := plainDecimal(a)
	y, okY := plainDecimal(b)
	if okX && okY {
		return x == y
	}
	return a == b
}

// plainDecimal answers a decimal without zeros that say nothing: one value, one text.
func plainDecimal(text string) (string, bool) {
	digits, negative := strings.CutPrefix(text, "-")
	whole, fraction, point := strings.Cut(digits, ".")
	if !allDigits(whole) || point && !allDigits(fraction) {
		return "", false
	}
	plain := strings.TrimLeft(whole, "0") + "." + strings.TrimRight(fraction, "0")
	if negative && plain != "." {
		plain = "-" + plain
	}
	return plain, true
}

func allDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

package conformance

import (
	"crypto/sha256"
	"fmt"
	"math/big"
)

// addHash adds an event to an idDigest, by the words of the design.
func addHash(sum [16]byte, source, id string) (out [16]byte) {
	h := sha256.Sum256(fmt.Appendf(nil, "%d:%s|%d:%s", len(source), source, len(id), id))
	n := new(big.Int).Add(new(big.Int).SetBytes(sum[:]), new(big.Int).SetBytes(h[:16]))
	n.And(n, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1)))
	n.FillBytes(out[:])
	return out
}

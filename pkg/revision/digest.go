package revision

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// DigestTextSize is the length of a digest in its text form.
const DigestTextSize = 2 * sha256.Size

// IsZero tells whether d is the digest of nothing: the state before a first record.
func (d Digest) IsZero() bool { return d == Digest{} }

// String answers lowercase hex.
func (d Digest) String() string {
	var text [DigestTextSize]byte
	return string(d.append(text[:0]))
}

// MarshalText writes what String answers.
func (d Digest) MarshalText() ([]byte, error) {
	return d.append(make([]byte, 0, DigestTextSize)), nil
}

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(text []byte) error {
	parsed, err := ParseDigest(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}

// ParseDigest reads 64 digits of lowercase hex. Upper case is refused: a digest has one text form.
func ParseDigest(text string) (Digest, error) {
	var d Digest
	if !parseHex(d[:], text) {
		return Digest{}, fmt.Errorf("%q is no digest: want %d digits of lowercase hex", text, DigestTextSize)
	}
	return d, nil
}

func (d Digest) append(dst []byte) []byte { return hex.AppendEncode(dst, d[:]) }

// ParseIDDigest reads a 128-bit idDigest: 32 digits of lowercase hex, big-endian.
func ParseIDDigest(text string) ([16]byte, error) {
	var d [16]byte
	if !parseHex(d[:], text) {
		return d, fmt.Errorf("%q is no idDigest: want %d digits of lowercase hex", text, 2*len(d))
	}
	return d, nil
}

// parseHex fills dst from exactly as many lowercase digits as it holds.
func parseHex(dst []byte, text string) bool {
	if len(text) != 2*len(dst) {
		return false
	}
	for i := range dst {
		hi, lo := unhex(text[2*i]), unhex(text[2*i+1])
		if hi > 15 || lo > 15 {
			return false
		}
		dst[i] = hi<<4 | lo
	}
	return true
}

func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// ComputeDigest answers the revision's digest: SHA-256 of its canonical JSON. It covers
// everything but attempt, traceparent and watermark, so that the same result has the same
// digest whoever had it accepted, and whenever.
func (r *Revision) ComputeDigest() Digest {
	var room [2048]byte
	return sha256.Sum256(r.AppendCanonical(room[:0]))
}

// ValueDigest answers the aggregateDigest of a value: SHA-256 of its canonical JSON.
// fields are sorted by name. The empty value of a RETRACT is the object {}.
func ValueDigest(fields []Field) Digest {
	var room [512]byte
	return sha256.Sum256(appendFields(room[:0], fields))
}

// Hash answers what the next COMMIT names as Previous: SHA-256 of the canonical JSON.
func (c *Commit) Hash() Digest {
	var room [2048]byte
	return sha256.Sum256(c.AppendJSON(room[:0]))
}

package effect

import (
	"encoding/hex"
	"fmt"
)

// EffectKey names an effect over revisions, policy generations, replays, restarts and
// owners, and is the key under which the provider knows it. Its text form is 64 digits
// of lowercase hex; the zero key names nothing.
type EffectKey [32]byte

// IsZero tells whether k names nothing.
func (k EffectKey) IsZero() bool { return k == EffectKey{} }

// String answers lowercase hex.
func (k EffectKey) String() string { return hex.EncodeToString(k[:]) }

// MarshalText writes what String answers.
func (k EffectKey) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, k[:]), nil }

// UnmarshalText reads what MarshalText wrote.
func (k *EffectKey) UnmarshalText(text []byte) error {
	parsed, err := ParseEffectKey(string(text))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}

// ParseEffectKey reads 64 digits of lowercase hex. Upper case is refused: a key has one
// text form, since providers compare it by its bytes.
func ParseEffectKey(text string) (EffectKey, error) {
	var k EffectKey
	if len(text) != 2*len(k) {
		return k, fmt.Errorf("an effectKey has %d digits of lowercase hex, this text has %d bytes", 2*len(k), len(text))
	}
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return k, fmt.Errorf("an effectKey has %d digits of lowercase hex; byte %d of this text is none", 2*len(k), i)
		}
	}
	_, err := hex.Decode(k[:], []byte(text))
	return k, err
}

package subscribe

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// token is what a resume token holds. The creation time tells a stream from another of
// the same name.
type token struct {
	Stream     string `json:"s"`
	Job        string `json:"j"`
	Key        string `json:"k,omitempty"`
	Generation int    `json:"g"`
	Created    int64  `json:"c"` // of the revisions stream, Unix nanoseconds
	Next       uint64 `json:"n"` // sequence to read next
}

func (t token) encode() string {
	raw, err := json.Marshal(t)
	if err != nil { // no member can fail
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// parseToken reads a token and checks that it belongs to o.
func parseToken(o Options) (token, error) {
	var t token
	raw, err := base64.RawURLEncoding.DecodeString(o.From)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	switch {
	case err != nil || t.Next == 0 || t.Generation == 0:
		return t, fmt.Errorf("%w: %q is no token of a batch", ErrToken, o.From)
	case t.Stream != o.Stream || t.Job != o.Job || t.Key != o.Key:
		return t, fmt.Errorf("%w: it was made for stream %s, job %s, key %q", ErrToken, t.Stream, t.Job, t.Key)
	case o.Generation != 0 && o.Generation != t.Generation:
		return t, fmt.Errorf("%w: it was made for generation %d, not %d", ErrToken, t.Generation, o.Generation)
	}
	return t, nil
}

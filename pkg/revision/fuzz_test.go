package revision_test

import (
	"bytes"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// FuzzCommit reads COMMITs, claims, positions and aliases: what is taken writes itself
// back and reads the same, with the same hash.
func FuzzCommit(f *testing.F) {
	c := revision.NewCommit()
	c.W, c.Epoch, c.Records = 5, 3, 9
	c.Inputs = []revision.InputPosition{{Stream: "TM_a_EVT_00", Created: 7, Seq: 12, Index: 3, Outputs: 2}}
	c.Counts = []revision.Count{{Name: "applied", N: 4}}
	f.Add(c.AppendJSON(nil))
	c.Wdata = envelope.MaxEventTime
	f.Add(c.AppendJSON(nil))
	f.Add([]byte(`{"epoch":1,"owner":"a","coreVersion":1}`))
	f.Add([]byte(`{"seq":1,"index":0,"outputs":0}`))
	f.Add([]byte(`{"canonical":1,"epoch":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := revision.ParseCommit(data); err == nil {
			text := c.AppendJSON(nil)
			back, err := revision.ParseCommit(text)
			if err != nil || back.Hash() != c.Hash() || !bytes.Equal(back.AppendJSON(nil), text) {
				t.Fatalf("%s: %v", text, err)
			}
		}
		if p, err := revision.ParsePosition(data); err == nil {
			if back, err := revision.ParsePosition(p.AppendJSON(nil)); err != nil || back != p {
				t.Fatalf("%+v became %+v: %v", p, back, err)
			}
		}
		if c, err := revision.ParseClaim(data); err == nil && c == nil {
			t.Fatal("no claim and no error")
		}
		if a, err := revision.ParseAlias(data); err == nil && a == nil {
			t.Fatal("no alias and no error")
		}
	})
}

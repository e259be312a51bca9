package revision_test

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

func exampleCommit() *revision.Commit {
	c := revision.NewCommit()
	c.Epoch = 7
	c.Inputs = []revision.InputPosition{{
		Stream: "TM_orders_EVT_03", Created: time.Date(2026, 11, 30, 9, 0, 0, 123456789, time.UTC).UnixNano(), Seq: 19378, Index: 2, Outputs: 1,
	}}
	c.W, c.Wdata = 1796036650250000, envelope.MinEventTime
	c.Counts = []revision.Count{{Name: "applied", N: 412}, {Name: "duplicate", N: 3}}
	c.IDDigest = [16]byte{15: 9}
	c.Records = 1
	c.RecordsDigest = revision.Digest{0: 1}
	return &c
}

func TestCommitGolden(t *testing.T) {
	zero, one := strings.Repeat("0", 64), "01"+strings.Repeat("0", 62)
	want := `{"counts":{"applied":412,"duplicate":3},"epoch":7,"idDigest":"00000000000000000000000000000009",` +
		`"inputs":[{"created":"2026-11-30T09:00:00.123456789Z","index":2,"outputs":1,"seq":19378,"stream":"TM_orders_EVT_03"}],` +
		`"openFrom":"+inf","previous":"` + zero + `","records":1,"recordsDigest":"` + one + `","schema":"commit.v1",` +
		`"w":"2026-11-30T11:04:10.25Z","wdata":"-inf"}`
	c := exampleCommit()
	if got := string(c.AppendJSON(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := fmt.Sprintf("%x", sha256.Sum256([]byte(want))); got != c.Hash().String() || got != vectorCommitHash {
		t.Errorf("hash is %s, want %s and %s", c.Hash(), got, vectorCommitHash)
	}
}

func TestCommitRoundTripAndCanonicalForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &revision.Commit{
			Epoch: rapid.Uint64().Draw(t, "epoch"),
			W:     drawTime(t, "w"), Wdata: drawTime(t, "wdata"), OpenFrom: drawTime(t, "openFrom"),
			IDDigest: [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "idDigest")),
			Records:  rapid.Uint64().Draw(t, "records"), RecordsDigest: drawDigest(t, "recordsDigest"), Previous: drawDigest(t, "previous"),
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "counts") {
			c.Counts = append(c.Counts, revision.Count{Name: fmt.Sprint("count", i), N: rapid.Uint64().Draw(t, "n")})
		}
		for range rapid.IntRange(0, 2).Draw(t, "inputs") {
			c.Inputs = append(c.Inputs, revision.InputPosition{
				Stream: rapid.String().Draw(t, "stream"), Created: rapid.Int64().Draw(t, "created"), Seq: rapid.Uint64().Draw(t, "seq"),
				Index: rapid.Uint32().Draw(t, "index"), Outputs: rapid.Uint32().Draw(t, "outputs"),
			})
		}
		text := c.AppendJSON(nil)
		back, err := revision.ParseCommit(text)
		if err != nil || !reflect.DeepEqual(back, c) {
			t.Fatalf("%s came back as %+v: %v", text, back, err)
		}
		canonical, err := envelope.Canonical(nil, text)
		if err != nil || string(canonical) != string(text) {
			t.Fatalf("%s is not canonical: %v", text, err)
		}
	})
}

func TestClaimAndAlias(t *testing.T) {
	claim := &revision.Claim{Epoch: 3, Owner: `host "a"`, CoreVersion: 1}
	if got, want := string(claim.AppendJSON(nil)), `{"coreVersion":1,"epoch":3,"owner":"host \"a\"","schema":"claim.v1"}`; got != want {
		t.Errorf("claim is %s, want %s", got, want)
	}
	if back, err := revision.ParseClaim(claim.AppendJSON(nil)); err != nil || *back != *claim {
		t.Errorf("claim came back as %+v: %v", back, err)
	}
	for want, alias := range map[string]*revision.Alias{
		`{"canonical":14,"epoch":1,"job":"hourly-revenue","schema":"alias.v1"}`:                        {Job: "hourly-revenue", Canonical: 14, Epoch: 1},
		`{"candidate":15,"candidatePercent":0,"canonical":14,"epoch":2,"job":"j","schema":"alias.v1"}`: {Job: "j", Canonical: 14, Candidate: 15, Epoch: 2},
		`{"candidate":15,"candidatePercent":25,"canonical":14,"epoch":3,"job":"j","schema":"alias.v1","switching":{"to":15}}`: {
			Job: "j", Canonical: 14, Candidate: 15, CandidatePercent: 25, Epoch: 3, Switching: 15,
		},
	} {
		if got := string(alias.AppendJSON(nil)); got != want {
			t.Errorf("alias is %s, want %s", got, want)
		}
		if back, err := revision.ParseAlias([]byte(want)); err != nil || *back != *alias {
			t.Errorf("alias came back as %+v: %v", back, err)
		}
	}
}

func TestCommitsAreReadStrictly(t *testing.T) {
	commit := string(exampleCommit().AppendJSON(nil))
	for _, c := range []struct{ old, new, want string }{
		{`"epoch":7`, `"epoch":7,"extra":1`, "unknown member"},
		{`"records":1,`, ``, `"records" is missing`},
		{`"applied":412`, `"applied":412,"applied":1`, "twice"},
		{`09:00:00.123456789Z`, `nine`, "RFC 3339"},
		{`commit.v1`, `claim.v1`, "schema"},
	} {
		if _, err := revision.ParseCommit([]byte(strings.Replace(commit, c.old, c.new, 1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want %q", c.new, err, c.want)
		}
	}
	if _, err := revision.ParseClaim([]byte(`{}`)); err == nil {
		t.Error("an empty claim is accepted")
	}
	if _, err := revision.ParseAlias([]byte(commit)); err == nil {
		t.Error("a commit passes for an alias")
	}
}

func TestPositions(t *testing.T) {
	p := exampleCommit().Inputs[0]
	if back, err := revision.ParsePosition(p.AppendJSON(nil)); err != nil || back != p {
		t.Errorf("position came back as %+v: %v", back, err)
	}
	ordered := []revision.InputPosition{{Seq: 1}, {Seq: 1, Outputs: 4}, {Seq: 1, Index: 1}, {Seq: 1, Index: 1, Outputs: 1}, {Seq: 2}}
	for i := range ordered {
		for j := range ordered {
			if got := ordered[i].Less(ordered[j]); got != (i < j) {
				t.Errorf("%+v < %+v is %v", ordered[i], ordered[j], got)
			}
		}
	}
}

package revision_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

var update = flag.Bool("update", false, "write testdata anew")

// The vectors of revision 2 of the design's example hour.
const (
	vectorDigest          = "a6a84ea6f939d28d0042b8a786bf138a6a8b8ff5969c5c118d178f58e6ce8c71"
	vectorAggregateDigest = "1f9e48c65a204643dcb1e01ef8dde983c87010dd2e92185b3a4aa6d736f07972"
	vectorCommitHash      = "6833e4c2b677a0bb392e9a83cd30a679a55276a40467e991ecbe21ece243d5d0"
)

// example is revision 2 of the design's example hour: a late refund took 15.00 away.
func example() *revision.Revision {
	first, _ := revision.ParseDigest(strings.Repeat("1f", 32))
	r := &revision.Revision{
		Stream:           "orders",
		Job:              "hourly-revenue",
		PolicyGeneration: "hourly-revenue@14",
		PolicyDigest:     strings.Repeat("5a", 32),
		Key:              "eu-west",
		Window:           revision.Window{Start: 1796032800000000, End: 1796036400000000},
		LogicalWindowID:  "a732f8c0b2bd104de82ebb514d6773a07245181cdef848b96b1a68a6e8112289",
		ProjectionID:     "82cbdfcae320b75130ffb99949fc13c7927ec6e4a1d619f88e18d562b4c24bda",
		Op:               revision.Upsert,
		Revision:         2,
		Predecessor:      &revision.Predecessor{Revision: 1, Digest: first},
		State:            revision.Corrected,
		Firing:           revision.FiringLate,
		Origin:           envelope.OriginLive,
		ValueChanged:     true,
		Value:            []revision.Field{{Name: "orders", Text: "412"}, {Name: "revenue", Text: "12930.50", Quoted: true}},
		Delta:            []revision.Field{{Name: "orders", Text: "1"}, {Name: "revenue", Text: "-15.00", Quoted: true}},
		Inputs: revision.Inputs{
			Partition: 3, First: 8812, Last: 19377, Events: 412, IDDigest: [16]byte{0: 0xab, 15: 0x01},
			Offsets: []revision.OffsetRange{{Source: "shop", Partition: 1, First: 5120, Last: 9033}},
		},
		Watermark:   revision.Watermark{At: 1796036650250000, Data: 1796036650250000},
		Cause:       revision.CauseLateEvent,
		Epoch:       7,
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	r.AggregateDigest = revision.ValueDigest(r.Value)
	return r
}

func TestGolden(t *testing.T) {
	const path = "testdata/revision.v1.json"
	got := append(example().AppendJSON(nil), '\n')
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the public form changed:\n got %s\nwant %s", got, want)
	}
	parsed, err := revision.ParseJSON(want)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(parsed, example()) {
		t.Errorf("parsed %+v", parsed)
	}
}

func TestVectors(t *testing.T) {
	r := example()
	if got := r.ComputeDigest().String(); got != vectorDigest {
		t.Errorf("digest is %s, want %s", got, vectorDigest)
	}
	if got := r.AggregateDigest.String(); got != vectorAggregateDigest {
		t.Errorf("aggregateDigest is %s, want %s", got, vectorAggregateDigest)
	}
	if got, want := revision.ValueDigest(nil), revision.Digest(sha256.Sum256([]byte("{}"))); got != want {
		t.Errorf("digest of no value is %s, want that of {}", got)
	}
}

func TestDigestLeavesOutAttemptTraceAndWatermark(t *testing.T) {
	r := example()
	want := r.ComputeDigest()
	r.Epoch, r.TraceParent, r.Watermark = 99, "", revision.Watermark{At: envelope.MinEventTime}
	if r.ComputeDigest() != want {
		t.Error("the digest depends on who had the revision accepted")
	}
}

// The hand-laid encoder says what a generic canonicaliser says of the public JSON.
func TestCanonicalEqualsGeneric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRevision(t)
		if got, want := string(r.AppendCanonical(nil)), string(generic(t, r.AppendJSON(nil))); got != want {
			t.Fatalf("canonical form:\n got %s\nwant %s", got, want)
		}
	})
}

func generic(t *rapid.T, public []byte) []byte {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(public, &members); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"attempt", "traceparent", "watermark"} {
		delete(members, name)
	}
	covered, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	canonical, err := envelope.Canonical(nil, covered)
	if err != nil {
		t.Fatal(err)
	}
	return canonical
}

func TestJSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRevision(t)
		public := r.AppendJSON(nil)
		back, err := revision.ParseJSON(public)
		if err != nil {
			t.Fatalf("%v in %s", err, public)
		}
		if !reflect.DeepEqual(back, r) {
			t.Fatalf("got  %+v\nwant %+v", back, r)
		}
		if strings.Contains(strings.ReplaceAll(string(public), `"null"`, ""), ":null") {
			t.Fatalf("a null in %s", public)
		}
	})
}

func TestParseAcceptsTheDesignsNullsAndAnyOrder(t *testing.T) {
	public := string(example().AppendJSON(nil))
	public = strings.Replace(public, `"op":`, `"resultId": null,`+"\n"+`"op": `, 1)
	public = `{"supersededBy":null,` + public[1:]
	public = strings.Replace(public, `{"orders":412,"revenue":"12930.50"}`, `{"revenue":"12930.50", "orders":412}`, 1)
	got, err := revision.ParseJSON([]byte(public))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, example()) {
		t.Errorf("got %+v", got)
	}
}

func TestParseRefuses(t *testing.T) {
	public := string(example().AppendJSON(nil))
	for name, c := range map[string]struct{ old, new, want string }{
		"unknown member":    {`"job":`, `"jobs":`, `unknown member "jobs"`},
		"missing member":    {`"cause":"LATE_EVENT",`, ``, `member "cause" is missing`},
		"repeated member":   {`"job":`, `"job":"x","job":`, `twice`},
		"repeated result":   {`"orders":412`, `"orders":412,"orders":412`, `twice`},
		"another schema":    {`revision.v1`, `revision.v2`, `knows "revision.v1" only`},
		"null":              {`"LATE_EVENT"`, `null`, `want '"'`},
		"fraction":          {`"revision":2`, `"revision":2.0`, `want an integer`},
		"exponent":          {`"orders":412`, `"orders":4e2`, `want an integer`},
		"leading zero":      {`"orders":412`, `"orders":0412`, `want an integer`},
		"minus zero":        {`"orders":412`, `"orders":-0`, `want an integer`},
		"negative":          {`"revision":2`, `"revision":-2`, `no unsigned integer`},
		"upper-case digest": {`1f1f`, `1F1f`, `no digest`},
		"finer than µs":     {`04:10.25Z`, `04:10.2500001Z`, `finer than a microsecond`},
		"origin":            {`"live"`, `"dead"`, `no origin`},
		"trailing bytes":    {`-01"}`, `-01"} x`, `trailing`},
		"truncated":         {`-01"}`, `-01"`, `want ','`},
		"bad UTF-8":         {`eu-west`, "eu-\xff", `UTF-8`},
		"control character": {`eu-west`, "eu-\n", `control character`},
		"half a surrogate":  {`eu-west`, `\ud800`, `surrogate`},
	} {
		changed := strings.Replace(public, c.old, c.new, 1)
		if changed == public {
			t.Fatalf("%s: nothing changed", name)
		}
		_, err := revision.ParseJSON([]byte(changed))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want %q", name, err, c.want)
		}
	}
}

func FuzzParseJSON(f *testing.F) {
	f.Add(example().AppendJSON(nil))
	f.Add([]byte(`{"schema":"revision.v1","key":"\u00e9\ud83d\ude00"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := revision.ParseJSON(data)
		if err != nil {
			return
		}
		back, err := revision.ParseJSON(r.AppendJSON(nil))
		if err != nil || !reflect.DeepEqual(normal(back), normal(r)) {
			t.Fatalf("%+v became %+v: %v", r, back, err)
		}
	})
}

// normal makes lists that hold nothing alike.
func normal(r *revision.Revision) *revision.Revision {
	if len(r.Inputs.Offsets) == 0 {
		r.Inputs.Offsets = nil
	}
	return r
}

func TestTextOfDigests(t *testing.T) {
	d := revision.Digest{0: 0xab, 31: 0x0f}
	text, err := json.Marshal(map[string]revision.Digest{"d": d})
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]revision.Digest
	if err := json.Unmarshal(text, &back); err != nil || back["d"] != d {
		t.Errorf("%s came back as %v: %v", text, back, err)
	}
	for _, bad := range []string{"", "ab", strings.Repeat("AB", 32), strings.Repeat("zz", 32), strings.Repeat("a", 63)} {
		if _, err := revision.ParseDigest(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if _, err := revision.ParseIDDigest(strings.Repeat("0", 31)); err == nil {
		t.Error("an idDigest of 31 digits is accepted")
	}
}

func TestDigestAllocatesNothing(t *testing.T) {
	r := example()
	if n := testing.AllocsPerRun(100, func() { r.ComputeDigest() }); n != 0 {
		t.Errorf("ComputeDigest allocates %v times", n)
	}
}

func BenchmarkComputeDigest(b *testing.B) {
	r := example()
	b.ReportAllocs()
	for b.Loop() {
		r.ComputeDigest()
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	r := example()
	buf := r.AppendJSON(nil)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		buf = r.AppendJSON(buf[:0])
	}
}

func BenchmarkParseJSON(b *testing.B) {
	public := example().AppendJSON(nil)
	b.SetBytes(int64(len(public)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := revision.ParseJSON(public); err != nil {
			b.Fatal(err)
		}
	}
}

package envelope_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

func nested(depth int) string {
	return strings.Repeat("[", depth) + strings.Repeat("]", depth)
}

func members(n int, last string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		fmt.Fprintf(&b, `"m%d":%d,`, i, i)
	}
	return b.String() + last + "}"
}

func TestStrictJSONRefuses(t *testing.T) {
	for _, c := range []struct {
		name, src string
		fault     envelope.Fault
		offset    int
	}{
		{"empty", "", envelope.Malformed, 0},
		{"space only", " \n", envelope.Malformed, 2},
		{"byte order mark", "\xef\xbb\xbf{}", envelope.Malformed, 0},
		{"NaN", `{"a":NaN}`, envelope.Malformed, 5},
		{"Infinity", `[Infinity]`, envelope.Malformed, 1},
		{"minus Infinity", `[-Infinity]`, envelope.Malformed, 2},
		{"trailing bytes", `{} x`, envelope.Malformed, 3},
		{"two values", `1 2`, envelope.Malformed, 2},
		{"trailing comma", `[1,]`, envelope.Malformed, 3},
		{"trailing comma in object", `{"a":1,}`, envelope.Malformed, 7},
		{"comment", `[1/**/]`, envelope.Malformed, 2},
		{"single quotes", `{'a':1}`, envelope.Malformed, 1},
		{"leading zero", `[01]`, envelope.Malformed, 1},
		{"plus", `[+1]`, envelope.Malformed, 1},
		{"no digits after point", `[1.]`, envelope.Malformed, 3},
		{"no digits before point", `[.5]`, envelope.Malformed, 1},
		{"empty exponent", `[1e+]`, envelope.Malformed, 4},
		{"hex", `[0x10]`, envelope.Malformed, 2},
		{"cut literal", `tru`, envelope.Malformed, 3},
		{"cut string", `"abc`, envelope.Malformed, 4},
		{"cut escape", `"abc\`, envelope.Malformed, 4},
		{"bad escape", `"\x41"`, envelope.Malformed, 1},
		{"cut unicode escape", `"\u12"`, envelope.Malformed, 1},
		{"tab in string", "\"a\tb\"", envelope.Malformed, 2},
		{"NUL in string", "\"a\x00b\"", envelope.Malformed, 2},
		{"lone high surrogate", `"\ud800"`, envelope.Malformed, 1},
		{"lone low surrogate", `"\udc00"`, envelope.Malformed, 1},
		{"high surrogate, then letter", `"\ud83dA"`, envelope.Malformed, 1},
		{"high surrogate twice", `"\ud83d\ud83d"`, envelope.Malformed, 1},
		{"surrogate in UTF-8", "\"\xed\xa0\x80\"", envelope.Malformed, 0},
		{"invalid UTF-8", "\"\xff\"", envelope.Malformed, 0},
		{"overlong UTF-8", "\"\xc0\xaf\"", envelope.Malformed, 0},
		{"invalid UTF-8 in name", "{\"\xff\":1}", envelope.Malformed, 1},
		{"depth 65", nested(65), envelope.TooDeep, 64},
		{"depth 100000", strings.Repeat("[", 100_000), envelope.TooDeep, 64},
		{"depth 65 of objects", strings.Repeat(`{"a":`, 64) + "{}" + strings.Repeat("}", 64), envelope.TooDeep, 64 * 5},
		{"duplicate", `{"a":1,"b":2,"a":3}`, envelope.Duplicate, 13},
		{"duplicate below", `{"x":[{"a":1,"a":1}]}`, envelope.Duplicate, 13},
		{"duplicate by escape", `{"a":1,"\u0061":2}`, envelope.Duplicate, 7},
		{"case twin", `{"amount":1,"Amount":2}`, envelope.Duplicate, 12},
		{"case twin, long", `{"accountNumber":1,"x":2,"accountnumber":2}`, envelope.Duplicate, 25},
		{"case twin, Kelvin sign", "{\"kelvin\":1,\"\u212aelvin\":2}", envelope.Duplicate, 12},
		{"case twin, long s", "{\"status\":1,\"\u017ftatus\":2}", envelope.Duplicate, 12},
		{"case twin, sigma", `{"σ":1,"ς":2}`, envelope.Duplicate, 8},
		{"case twin, umlaut", `{"Größe":1,"GRÖßE":2}`, envelope.Duplicate, 13},
		{"duplicate of many", members(100, `"m7":1`), envelope.Duplicate, -1},
		{"case twin of many", members(100, `"M7":1`), envelope.Duplicate, -1},
		{"duplicate, but malformed behind", `{"a":1,"a":2}]`, envelope.Malformed, 13},
		{"empty names twice", `{"":1,"":2}`, envelope.Duplicate, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d envelope.Document
			err := d.Parse([]byte(c.src), envelope.MaxDepth)
			var fault *envelope.JSONError
			if !errors.As(err, &fault) {
				t.Fatalf("got %v, want a JSONError", err)
			}
			if fault.Fault != c.fault || c.offset >= 0 && fault.Offset != c.offset {
				t.Errorf("got fault %d at %d (%v), want %d at %d", fault.Fault, fault.Offset, fault, c.fault, c.offset)
			}
		})
	}
}

func TestStrictJSONAccepts(t *testing.T) {
	for _, src := range []string{
		nested(64), "null", ` {"a" : [ 1 , 2 ] } `, `"\ud83d\ude00"`, `"😀 ÿ \u0000 \/"`, `1e999`, `-0`, `-0.0e-0`,
		strings.Repeat("9", 5000), `{"a":1,"b":{"a":1}}`, `[{"a":1},{"a":1}]`, `{"straße":1,"STRASSE":2}`,
		`{"[":1,"{":2,"@":3,"` + "`" + `":4}`, members(200, `"n":null`), `{"":1}`, `{"abcdefgh":1,"abcdefghi":2,"abcdefg":3}`,
	} {
		var d envelope.Document
		if err := d.Parse([]byte(src), envelope.MaxDepth); err != nil {
			t.Errorf("%.60s: %v", src, err)
		}
	}
}

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{` { "b" : 1 , "a" : [ 1 , null , 2.50 ] } `, `{"a":[1,null,2.50],"b":1}`},
		{`{"a":null,"b":{"c":null}}`, `{"b":{}}`},
		{`null`, `null`},
		{`[null]`, `[null]`},
		{`{"n":1E+2,"m":1.0,"o":-0}`, `{"m":1.0,"n":1E+2,"o":-0}`},
		{`{"\u0062":"\u0041\/\u00e9\u001f\n\u2028\"\\\ud83d\ude00"}`, `{"b":"A/é\u001f\n` + "\u2028" + `\"\\😀"}`},
		{`{"é":1,"z":2,"Z":3}`, ``},
		{`{"é":1,"z":2,"😀":3,"ﬀ":4}`, `{"z":2,"é":1,"ﬀ":4,"😀":3}`},
		{`{"abcdefgh2":1,"abcdefgh1":2,"abcdefgh":3,"abcdefgh\u0000":4}`, `{"abcdefgh":3,"abcdefgh\u0000":4,"abcdefgh1":2,"abcdefgh2":1}`},
		{`{"a":1,"a\u0000":2}`, `{"a":1,"a\u0000":2}`},
	} {
		got, err := envelope.Canonical([]byte("x"), []byte(c.src))
		if c.want == "" {
			if err == nil {
				t.Errorf("%s: no error", c.src)
			}
			continue
		}
		if err != nil || string(got) != "x"+c.want {
			t.Errorf("%s\n got %s, %v\nwant x%s", c.src, got, err, c.want)
		}
	}
}

func TestCanonicalOfManyMembersIsSorted(t *testing.T) {
	got, err := envelope.Canonical(nil, []byte(members(500, `"a":0`)))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]int
	if err := json.Unmarshal(got, &object); err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(object) // encoding/json sorts the keys of maps
	if err != nil || string(got) != string(want) {
		t.Errorf("got %.80s, want %.80s (%v)", got, want, err)
	}
}

// The vector of the event digest: any implementation must come to it.
func TestEventDigestVector(t *testing.T) {
	src := `{ "order": {"region":"eu-west", "amount":12945.50, "coupon":null, "occurred_at":"2026-11-30T10:15:00.250Z"},
	 "id":"order-42", "tags":["a\u002fb", null, 1e2] }`
	canonical := `{"id":"order-42","order":{"amount":12945.50,"occurred_at":"2026-11-30T10:15:00.250Z","region":"eu-west"},"tags":["a/b",null,1e2]}`
	got, err := envelope.Canonical(nil, []byte(src))
	if err != nil || string(got) != canonical {
		t.Fatalf("canonical form is %s (%v)", got, err)
	}
	digest, err := envelope.DigestJSON([]byte(src))
	const want = "53ed0e5bc4f306ba8828f5d8a3a6c87c8a912ae654fad1509a4b12252dd6c8c1"
	if err != nil || hex.EncodeToString(digest[:]) != want {
		t.Errorf("got %x (%v), want %s", digest, err, want)
	}
}

func TestPointer(t *testing.T) {
	// The examples of RFC 6901, section 5, and what must not be found.
	src := `{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,"deep":{"er":{"x":9}}}`
	var d envelope.Document
	if err := d.Parse([]byte(src), envelope.MaxDepth); err != nil {
		t.Fatal(err)
	}
	for pointer, want := range map[string]string{
		"": src, "/foo": `["bar","baz"]`, "/foo/0": `"bar"`, "/foo/1": `"baz"`, "/": "0", "/a~1b": "1", "/c%d": "2",
		"/e^f": "3", "/g|h": "4", `/i\j`: "5", `/k"l`: "6", "/ ": "7", "/m~0n": "8", "/deep/er/x": "9",
		"/foo/2": "", "/foo/-": "", "/foo/01": "", "/foo/+1": "", "/foo/-1": "", "/Foo": "", "/deep/er/x/y": "", "/foo/0/x": "",
	} {
		p, err := envelope.ParsePointer(pointer)
		if err != nil {
			t.Errorf("%q: %v", pointer, err)
			continue
		}
		got := ""
		if n, ok := d.Lookup(0, &p); ok {
			got = string(d.Raw(n))
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", pointer, got, want)
		}
	}
	for _, pointer := range []string{"foo", "/~", "/~2", "/a~"} {
		if _, err := envelope.ParsePointer(pointer); err == nil {
			t.Errorf("%q is taken for a pointer", pointer)
		}
	}
}

// FuzzStrictJSON compares with encoding/json, which is more lenient but must agree on
// what the texts mean.
func FuzzStrictJSON(f *testing.F) {
	for _, seed := range []string{
		`{"id":"a","order":{"amount":12.50,"x":null}}`, `[1,2.5e10,"\ud83d\ude00",true,null]`, nested(65), `{"a":1,"A":2}`,
		"{\"k\":1,\"\u212a\":2}", `"\ud800"`, "\xef\xbb\xbf1", `1e999`, `{"a\u0000":1,"a":2}`, members(20, `"m1":1`),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		canonical, err := envelope.Canonical(nil, src)
		if err != nil {
			return
		}
		var want, got any
		if err := json.Unmarshal(src, &want); err != nil {
			var number *json.UnmarshalTypeError
			if !errors.As(err, &number) { // 1e999 does not fit a float64
				t.Fatalf("accepted %q, encoding/json says %v", src, err)
			}
			return
		}
		if err := json.Unmarshal(canonical, &got); err != nil {
			t.Fatalf("canonical form %q of %q: %v", canonical, src, err)
		}
		left, _ := json.Marshal(dropNulls(want))
		right, _ := json.Marshal(got)
		if string(left) != string(right) {
			t.Fatalf("%q became %q", src, canonical)
		}
		again, err := envelope.Canonical(nil, canonical)
		if err != nil || string(again) != string(canonical) {
			t.Fatalf("canonical form %q is not its own canonical form %q (%v)", canonical, again, err)
		}
	})
}

func dropNulls(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for name, member := range x {
			if member == nil {
				delete(x, name)
				continue
			}
			x[name] = dropNulls(member)
		}
	case []any:
		for i := range x {
			x[i] = dropNulls(x[i])
		}
	}
	return v
}

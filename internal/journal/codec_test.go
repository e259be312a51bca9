package journal

import (
	"bytes"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

func samples(t testing.TB) [][]byte {
	c := numbered(2)
	var out [][]byte
	for _, e := range []*Entry{
		{},
		{Claim: &revision.Claim{Epoch: 3, Owner: "o", CoreVersion: 1}},
		{Control: []byte(`{"retire":true}`)},
		{Commit: &c},
		{Records: [][]byte{[]byte("a"), {}, bytes.Repeat([]byte("b"), 300)}, Commit: &c},
	} {
		data, err := EncodeEntry(e)
		must(t, err)
		out = append(out, data)
	}
	return out
}

func TestEntryRoundTrip(t *testing.T) {
	for i, data := range samples(t) {
		e, err := DecodeEntry(7, data)
		must(t, err)
		again, err := EncodeEntry(e)
		must(t, err)
		if e.Seq != 7 || !bytes.Equal(data, again) {
			t.Fatalf("sample %d: %+v", i, e)
		}
	}
	e, err := DecodeEntry(1, samples(t)[4])
	must(t, err)
	if len(e.Records) != 3 || string(e.Records[0]) != "a" || len(e.Records[1]) != 0 || len(e.Records[2]) != 300 || e.Commit.Records != 2 {
		t.Fatalf("%+v", e)
	}
}

func TestEntryRefusals(t *testing.T) {
	c := numbered(1)
	for name, e := range map[string]*Entry{
		"two kinds":              {Claim: &revision.Claim{Epoch: 1, Owner: "o"}, Commit: &c},
		"records without commit": {Records: [][]byte{{1}}},
		"empty control":          {Control: []byte{}},
	} {
		if _, err := EncodeEntry(e); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
	whole := samples(t)[4]
	for name, data := range map[string][]byte{
		"unknown field":      {0x2a, 0},
		"other wire type":    {0x08, 1},
		"cut off":            whole[:len(whole)-1],
		"trailing":           append(bytes.Clone(whole), 0),
		"commit twice":       append(bytes.Clone(samples(t)[3]), samples(t)[3]...),
		"records after":      append(bytes.Clone(samples(t)[3]), 0x1a, 1, 'x'),
		"records only":       {0x1a, 1, 'x'},
		"length not minimal": {0x12, 0x81, 0x00, 'x'},
		"bad claim":          {0x0a, 2, '{', '}'},
		"empty control":      {0x12, 0},
	} {
		if e, err := DecodeEntry(1, data); err == nil {
			t.Errorf("%s: decoded as %+v", name, e)
		}
	}
}

func TestFenceRecordRefusals(t *testing.T) {
	c := numbered(1)
	for _, r := range []FenceRecord{{}, {Claim: &revision.Claim{Epoch: 1}, Commit: &c}, {Control: []byte("{")}} {
		if _, err := EncodeFence(r); err == nil {
			t.Errorf("%+v: encoded", r)
		}
	}
	for _, text := range []string{``, `{}`, `[]`, `{"claim":{}}`, `{"other":1}`, `{"control":1,"claim":null}x`, `{"control":1} {}`, `{"control":{},"commit":{}}`} {
		if r, err := DecodeFence(1, []byte(text)); err == nil {
			t.Errorf("%s: decoded as %+v", text, r)
		}
	}
}

func TestClassify(t *testing.T) {
	for _, tc := range []struct {
		code int
		text string
		want verdict
		last uint64
	}{
		{10071, "wrong last sequence: 4711", conflict, 4711},
		{10071, "wrong last sequence: many", conflict, 0},
		{10164, "wrong last sequence", conflict, 0},
		{10060, "expected stream does not match", refused, 0},
		{10174, "batch publish is disabled", refused, 0},
		{10176, "batch is incomplete", unsure, 0},
		{10201, "duplicate", unsure, 0},
		{10210, "too many inflight", unsure, 0},
		{10211, "too many inflight", unsure, 0},
		{10077, "store failed", unsure, 0},
		{10008, "no leader", unsure, 0},
	} {
		if v, last := classify(tc.code, tc.text); v != tc.want || last != tc.last {
			t.Errorf("%d %q: %s, %d", tc.code, tc.text, v, last)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	for _, data := range samples(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := DecodeEntry(1, data)
		if err != nil {
			return
		}
		again, err := EncodeEntry(e)
		must(t, err)
		second, err := DecodeEntry(1, again)
		must(t, err)
		third, err := EncodeEntry(second)
		must(t, err)
		if !bytes.Equal(again, third) {
			t.Fatalf("%x is not stable", data)
		}
	})
}

func FuzzDecodeFence(f *testing.F) {
	c := numbered(2)
	for _, r := range []FenceRecord{{Claim: &revision.Claim{Epoch: 3, Owner: "o", CoreVersion: 1}}, {Control: []byte(`{"retire":true}`)}, {Commit: &c}} {
		data, err := EncodeFence(r)
		must(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeFence(1, data)
		if err != nil {
			return
		}
		again, err := EncodeFence(r)
		must(t, err)
		_, err = DecodeFence(1, again)
		must(t, err)
	})
}

package record_test

import (
	"cmp"
	"encoding/hex"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

var static = record.Static{
	Stream: "orders", Job: "hourly-revenue", PolicyGeneration: "hourly-revenue@14", PolicyDigest: strings.Repeat("5a", 32),
}

func example() *revision.Revision {
	r := &revision.Revision{
		Key:          "eu-west",
		Window:       revision.Window{Start: 1796032800000000, End: 1796036400000000},
		Op:           revision.Upsert,
		Revision:     2,
		Predecessor:  &revision.Predecessor{Revision: 1, Digest: revision.Digest{0: 0x1f}},
		State:        revision.Corrected,
		Firing:       revision.FiringLate,
		ValueChanged: true,
		Value:        []revision.Field{{Name: "orders", Text: "412"}, {Name: "revenue", Text: "12930.50", Quoted: true}},
		Delta:        []revision.Field{{Name: "orders", Text: "1"}, {Name: "revenue", Text: "-15.00", Quoted: true}},
		Inputs: revision.Inputs{
			Partition: 3, First: 8812, Last: 19377, Events: 412, IDDigest: [16]byte{0: 0xab, 15: 1},
			Offsets: []revision.OffsetRange{{Source: "shop", Partition: 1, First: 5120, Last: 9033}},
		},
		Watermark: revision.Watermark{At: 1796036650250000, Data: envelope.MinEventTime},
		Cause:     revision.CauseLateEvent,
	}
	static.Fill(r)
	return r
}

// The bytes of a record enter digests that outlive a binary: they must never change
// without a new core version.
func TestGoldenBytes(t *testing.T) {
	event := record.EventRef{
		Source: "shop", ID: "o-17", Key: "eu-west", SourcePartition: 1, SourceOffset: 1<<32 | 17, EventTime: 1796032800000001,
		Digest: [32]byte{0: 1}, Op: envelope.Retract, Withdraws: "o-3", Place: record.Place{Seq: 19377, Index: 4},
	}
	r := example()
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"proposal": {record.AppendProposal(nil, r, r.ComputeDigest()), "010a0765752d776573741080a0e490efdeb0061880b081fa89dfb00628013002380142201f0000000000000000000000" +
			"00000000000000000000000000000000000000004802500260016a0d0a066f726465727312033431326a150a07726576" +
			"656e7565120831323933302e35301801720b0a066f726465727312013172130a07726576656e756512062d31352e3030" +
			"180178038001ec448801b1970190019c039a0110ab000000000000000000000000000001a2010e0a0473686f70100118" +
			"802820c946a801a0bcd5e88bdfb006b001ffffffffffffffffff01ba010a4c4154455f4556454e54d201205a530f30e3" +
			"1dc8653e7492fb96ba4aef9f147b4db5f5a24d050ed1a8c6d3b24e"},
		"late": {
			record.AppendLate(nil, &record.Late{Event: event, Window: r.Window, W: 1796122800000000, None: true}),
			"020a550a0473686f7012046f2d31371a0765752d7765737420012891808080103082a0e490efdeb0063a200100000000" +
				"00000000000000000000000000000000000000000000000000000040014a036f2d3350b1970158041080a0e490efdeb0" +
				"061880b081fa89dfb0062080b0bcd78de4b0062801",
		},
		"conflict": {
			record.AppendConflict(nil, &record.Conflict{Event: event, Rule: "other-digest", First: [16]byte{0: 2}}),
			"030a550a0473686f7012046f2d31371a0765752d7765737420012891808080103082a0e490efdeb0063a200100000000" +
				"00000000000000000000000000000000000000000000000000000040014a036f2d3350b197015804120c6f746865722d" +
				"6469676573741a1002000000000000000000000000000000",
		},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s is\n%s, want\n%s", name, got, c.want)
		}
	}
}

func TestFillRestoresTheWholeRevision(t *testing.T) {
	r := example()
	rec, err := record.Decode(record.AppendProposal(nil, r, r.ComputeDigest()))
	if err != nil {
		t.Fatal(err)
	}
	static.Fill(rec.Proposal)
	if !reflect.DeepEqual(rec.Proposal, r) {
		t.Errorf("got  %+v\nwant %+v", rec.Proposal, r)
	}
	if got := rec.Proposal.ComputeDigest(); got != rec.Digest {
		t.Errorf("computed digest %s, carried %s", got, rec.Digest)
	}
	if got, want := r.ProjectionID, "82cbdfcae320b75130ffb99949fc13c7927ec6e4a1d619f88e18d562b4c24bda"; got != want {
		t.Errorf("projectionId is %s, want %s", got, want)
	}
}

func TestProposalRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawProposal(t)
		digest := revision.Digest(rapid.SliceOfN(rapid.Byte(), 32, 32).Filter(func(b []byte) bool { return slices.Max(b) > 0 }).Draw(t, "digest"))
		data := record.AppendProposal(nil, want, digest)
		rec, err := record.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if rec.Digest != digest || !reflect.DeepEqual(rec.Proposal, want) || rec.Late != nil || rec.Conflict != nil {
			t.Fatalf("got  %+v\nwant %+v", rec.Proposal, want)
		}
		if record.KindOf(data) != record.KindProposal {
			t.Fatalf("kind is %d", record.KindOf(data))
		}
	})
}

func TestLateAndConflictRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		late := &record.Late{
			Event:  drawEvent(t),
			Window: revision.Window{Start: envelope.EventTime(rapid.Int64().Draw(t, "start")), End: envelope.EventTime(rapid.Int64().Draw(t, "end"))},
			W:      envelope.EventTime(rapid.Int64().Draw(t, "w")),
			None:   rapid.Bool().Draw(t, "none"),
		}
		data := record.AppendLate([]byte("before"), late)[len("before"):]
		if rec, err := record.Decode(data); err != nil || !reflect.DeepEqual(rec.Late, late) || record.KindOf(data) != record.KindLate {
			t.Fatalf("got %+v, want %+v: %v", rec.Late, late, err)
		}
		conflict := &record.Conflict{Event: drawEvent(t), Rule: rapid.String().Draw(t, "rule"), First: [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "first"))}
		data = record.AppendConflict(nil, conflict)
		if rec, err := record.Decode(data); err != nil || !reflect.DeepEqual(rec.Conflict, conflict) || record.KindOf(data) != record.KindConflict {
			t.Fatalf("got %+v, want %+v: %v", rec.Conflict, conflict, err)
		}

		refused := &record.Refused{
			Key: conflict.Event.Key, Epoch: rapid.Uint64().Draw(t, "epoch"),
			AsOf: conflict.Event.Place, Why: rapid.String().Draw(t, "why"),
		}
		data = record.AppendRefused(nil, refused)
		if rec, err := record.Decode(data); err != nil || !reflect.DeepEqual(rec.Refused, refused) || record.KindOf(data) != record.KindRefused {
			t.Fatalf("got %+v, want %+v: %v", rec.Refused, refused, err)
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	good := record.AppendProposal(nil, example(), example().ComputeDigest())
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"nothing":         {nil, "empty"},
		"unknown kind":    {[]byte{9}, "kind 9 is unknown"},
		"cut off":         {good[:len(good)-1], "ends inside a field"},
		"no digest":       {good[:len(good)-35], "carries no digest"},
		"unknown field":   {append(slices.Clone(good), 0xf8, 0x01, 1), "field 31 is unknown"},
		"unknown op":      {append(slices.Clone(good), 5<<3, 7), "7 is unknown"},
		"unknown origin":  {append(slices.Clone(good), 11<<3, 4), "4 is unknown"},
		"wire type":       {append(slices.Clone(good), 1<<3, 1), "want 2"},
		"fixed32":         {append(slices.Clone(good), 1<<3|5, 1), "do not use"},
		"field 0":         {append(slices.Clone(good), 0, 1), "out of range"},
		"bool":            {append(slices.Clone(good), 12<<3, 2), "want 0 or 1"},
		"short idDigest":  {append(slices.Clone(good), 19<<3&0x7f|2|0x80, 1, 1, 0), "want 16"},
		"endless number":  {append(slices.Clone(good), 6<<3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2), "longer than 64 bits"},
		"33-bit part":     {append(slices.Clone(good), 15<<3, 255, 255, 255, 255, 31), "more than 32 bits"},
		"inside a result": {append(slices.Clone(good), 13<<3|2, 2, 4<<3, 1), "field 13: field 4 is unknown"},
	} {
		if _, err := record.Decode(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want %q", name, err, c.want)
		}
	}
	if record.KindOf(nil) != 0 || record.KindOf([]byte{5}) != 0 {
		t.Error("KindOf knows a kind that does not exist")
	}
}

func TestDecodeOwnsItsMemory(t *testing.T) {
	data := record.AppendProposal(nil, example(), example().ComputeDigest())
	rec, err := record.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	static.Fill(rec.Proposal)
	if !reflect.DeepEqual(rec.Proposal, example()) {
		t.Error("the record changed with the buffer")
	}
}

// What decodes at all decodes to one content with one encoding.
func FuzzDecode(f *testing.F) {
	f.Add(record.AppendProposal(nil, example(), example().ComputeDigest()))
	f.Add(record.AppendLate(nil, &record.Late{Event: record.EventRef{Source: "shop", ID: "1"}, None: true}))
	f.Add(record.AppendConflict(nil, &record.Conflict{Event: record.EventRef{Source: "shop", ID: "1"}, Rule: "other-digest"}))
	f.Add(record.AppendRefused(nil, &record.Refused{Key: "eu", Epoch: 3, AsOf: record.Place{Seq: 7, Index: 1}, Why: record.RefusedStale}))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := record.Decode(data)
		if err != nil {
			return
		}
		again, err := record.Decode(encode(first))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again, first) {
			t.Fatalf("%+v became %+v", first, again)
		}
	})
}

func encode(rec record.Record) []byte {
	switch {
	case rec.Proposal != nil:
		return record.AppendProposal(nil, rec.Proposal, rec.Digest)
	case rec.Late != nil:
		return record.AppendLate(nil, rec.Late)
	case rec.Refused != nil:
		return record.AppendRefused(nil, rec.Refused)
	}
	return record.AppendConflict(nil, rec.Conflict)
}

func drawEvent(t *rapid.T) record.EventRef {
	return record.EventRef{
		Source:          rapid.String().Draw(t, "source"),
		ID:              rapid.String().Draw(t, "id"),
		Key:             rapid.StringN(0, 100, 256).Draw(t, "key"),
		SourcePartition: rapid.Uint32().Draw(t, "sourcePartition"),
		SourceOffset:    rapid.Uint64().Draw(t, "sourceOffset"),
		EventTime:       envelope.EventTime(rapid.Int64().Draw(t, "eventTime")),
		Digest:          [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest")),
		Op:              envelope.Op(rapid.IntRange(0, 1).Draw(t, "op")),
		Withdraws:       rapid.String().Draw(t, "withdraws"),
		Place:           record.Place{Seq: rapid.Uint64().Draw(t, "seq"), Index: rapid.Uint32().Draw(t, "index")},
	}
}

func drawFields(t *rapid.T, label string) []revision.Field {
	var fields []revision.Field
	for i := range rapid.IntRange(0, 4).Draw(t, label) {
		fields = append(fields, revision.Field{
			Name: rapid.String().Draw(t, "name") + strconv.Itoa(i), Text: rapid.StringN(0, 200, 400).Draw(t, "text"), Quoted: rapid.Bool().Draw(t, "quoted"),
		})
	}
	slices.SortFunc(fields, func(a, b revision.Field) int { return cmp.Compare(a.Name, b.Name) })
	return fields
}

// drawProposal draws what a record carries: no static fields, no epoch.
func drawProposal(t *rapid.T) *revision.Revision {
	number := rapid.OneOf(rapid.Uint64(), rapid.Just(uint64(0)))
	instant := func(label string) envelope.EventTime { return envelope.EventTime(rapid.Int64().Draw(t, label)) }
	r := &revision.Revision{
		Key:          rapid.StringN(0, 256, 256).Draw(t, "key"),
		Window:       revision.Window{Start: instant("start"), End: instant("end")},
		ResultID:     rapid.String().Draw(t, "resultID"),
		Op:           rapid.SampledFrom([]revision.Op{revision.Upsert, revision.Retract}).Draw(t, "op"),
		Revision:     number.Draw(t, "revision"),
		State:        rapid.SampledFrom([]revision.OutputState{revision.OnTimeEmitted, revision.Corrected}).Draw(t, "state"),
		Firing:       rapid.SampledFrom([]revision.Firing{revision.FiringOnTime, revision.FiringLate, revision.FiringReopened}).Draw(t, "firing"),
		Origin:       envelope.Origin(rapid.IntRange(0, 3).Draw(t, "origin")),
		ValueChanged: rapid.Bool().Draw(t, "valueChanged"),
		Value:        drawFields(t, "value"),
		Delta:        drawFields(t, "delta"),
		Watermark:    revision.Watermark{At: instant("at"), Data: instant("data")},
		Cause:        rapid.String().Draw(t, "cause"),
		SupersededBy: rapid.String().Draw(t, "supersededBy"),
		Inputs: revision.Inputs{
			Partition: rapid.IntRange(0, 99).Draw(t, "partition"), First: number.Draw(t, "first"), Last: number.Draw(t, "last"),
			Events: number.Draw(t, "events"), IDDigest: [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "idDigest")),
		},
	}
	if rapid.Bool().Draw(t, "second") {
		r.Predecessor = &revision.Predecessor{Revision: number.Draw(t, "before"), Digest: revision.Digest(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"))}
	}
	for range rapid.IntRange(0, 3).Draw(t, "offsets") {
		r.Inputs.Offsets = append(r.Inputs.Offsets, revision.OffsetRange{
			Source: rapid.StringN(0, 200, 400).Draw(t, "source"), Partition: rapid.Uint32().Draw(t, "sourcePartition"),
			First: number.Draw(t, "from"), Last: number.Draw(t, "to"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(t, "supersedes") {
		r.Supersedes = append(r.Supersedes, revision.Supersession{ProjectionID: rapid.String().Draw(t, "projection"), Revision: number.Draw(t, "old")})
	}
	return r
}

func BenchmarkAppendProposal(b *testing.B) {
	r := example()
	digest := r.ComputeDigest()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = record.AppendProposal(buf[:0], r, digest)
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkDecodeFill(b *testing.B) {
	data := record.AppendProposal(nil, example(), example().ComputeDigest())
	b.ReportAllocs()
	for b.Loop() {
		rec, err := record.Decode(data)
		if err != nil {
			b.Fatal(err)
		}
		static.Fill(rec.Proposal)
	}
}

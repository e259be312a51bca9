package envelope_test

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"pgregory.net/rapid"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

func drawReopenEvents(t *rapid.T, retractions bool) (events []envelope.ReopenEvent) {
	name := rapid.StringN(1, 8, 32)
	for range rapid.IntRange(0, 3).Draw(t, "events") {
		e := envelope.ReopenEvent{
			Source: name.Draw(t, "source"), ID: name.Draw(t, "id"), Time: envelope.EventTime(rapid.Int64().Draw(t, "time")),
			SourcePartition: rapid.Uint32().Draw(t, "partition"), SourceOffset: rapid.Uint64().Draw(t, "offset"),
			Origin: envelope.Origin(rapid.IntRange(0, 3).Draw(t, "origin")), Seq: rapid.Uint64().Draw(t, "seq"), Index: rapid.Uint32().Draw(t, "index"),
			Refused: rapid.Uint32().Draw(t, "refused"),
		}
		copy(e.Digest[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"))
		if retractions {
			e.Withdraws = name.Draw(t, "withdraws")
		}
		for range rapid.IntRange(0, 2).Draw(t, "values") {
			e.Values = append(e.Values, envelope.Value{Int: rapid.Int64().Draw(t, "int"), Text: rapid.StringN(0, 3, 9).Draw(t, "text")})
		}
		events = append(events, e)
	}
	return events
}

func drawReopenWindow(t *rapid.T) envelope.ReopenWindow {
	w := envelope.ReopenWindow{
		Start: envelope.EventTime(rapid.Int64Range(-9, 9).Draw(t, "start")), End: 10, Revision: rapid.Uint64Min(1).Draw(t, "revision"),
		Digest: [32]byte{rapid.Byte().Draw(t, "digest")}, FirstLate: rapid.Bool().Draw(t, "firstLate"),
		First: rapid.Uint64Max(5).Draw(t, "first"), Last: rapid.Uint64Min(5).Draw(t, "last"), Events: rapid.Uint64Min(1).Draw(t, "n"),
		IDDigest: [16]byte{15: rapid.Byte().Draw(t, "idDigest")}, Members: drawReopenEvents(t, false),
	}
	for range rapid.IntRange(0, 2).Draw(t, "fields") {
		w.Value = append(w.Value, envelope.ReopenField{Name: rapid.String().Draw(t, "name"), Text: rapid.String().Draw(t, "text"), Quoted: rapid.Bool().Draw(t, "quoted")})
		w.State = append(w.State, []byte(rapid.String().Draw(t, "state")))
	}
	for range rapid.IntRange(0, 2).Draw(t, "offsets") {
		w.Offsets = append(w.Offsets, envelope.ReopenOffsets{Source: rapid.String().Draw(t, "s"), Partition: rapid.Uint32().Draw(t, "p"), First: rapid.Uint64().Draw(t, "f"), Last: rapid.Uint64().Draw(t, "l")})
	}
	return w
}

func drawReopen(t *rapid.T) *envelope.Reopen {
	r := &envelope.Reopen{
		PolicyGeneration: rapid.StringN(1, 8, 32).Draw(t, "generation"), Key: rapid.StringN(1, 8, 32).Draw(t, "key"), Epoch: rapid.Uint64().Draw(t, "epoch"),
		AsOf: envelope.ReopenPlace{Seq: rapid.Uint64().Draw(t, "seq"), Index: rapid.Uint32().Draw(t, "index")}, AsOfNow: envelope.IngestTime(rapid.Int64().Draw(t, "now")),
		Add: drawReopenEvents(t, false), Withdraw: drawReopenEvents(t, true),
	}
	if r.Parts = rapid.Uint32Range(0, envelope.MaxReopenParts).Draw(t, "parts"); r.Parts > 0 {
		r.Part = rapid.Uint32Range(1, r.Parts).Draw(t, "part")
	}
	if r.Part > 1 && rapid.Bool().Draw(t, "continues") {
		r.Restore = append(r.Restore, envelope.ReopenWindow{Start: 1, End: 2, Members: drawReopenEvents(t, false)})
	}
	for range rapid.IntRange(0, 2).Draw(t, "windows") {
		r.Restore = append(r.Restore, drawReopenWindow(t))
		r.Retracted = append(r.Retracted, envelope.ReopenRetracted{Start: 1, End: 2, Revision: rapid.Uint64Min(1).Draw(t, "rev"), Digest: [32]byte{7}})
	}
	return r
}

func TestReopenRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawReopen(t)
		body, err := envelope.AppendReopen([]byte("x"), want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := envelope.ParseReopen(body[1:])
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v: %v", got, want, err)
		}
		clear(body)
		if !reflect.DeepEqual(got, want) {
			t.Fatal("the answer changed with the buffer")
		}
	})
}

// A protobuf library reads what the published schema says and writes the same bytes.
func TestReopenFollowsThePublishedSchema(t *testing.T) {
	text, err := os.ReadFile("../schema/frame.proto")
	if err != nil {
		t.Fatal(err)
	}
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(map[string]string{"frame.proto": string(text)})}}
	files, err := compiler.Compile(t.Context(), "frame.proto")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		r := drawReopen(t)
		body, err := envelope.AppendReopen(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		m := dynamicpb.NewMessage(files[0].Messages().ByName("Reopen"))
		if err := proto.Unmarshal(body, m); err != nil {
			t.Fatal(err)
		}
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil || !bytes.Equal(again, body) {
			t.Fatalf("got\n%x, protobuf writes\n%x (%v)", body, again, err)
		}
		if got := m.Get(m.Descriptor().Fields().ByName("withdraw")).List().Len(); got != len(r.Withdraw) {
			t.Fatalf("the schema finds %d retractions, want %d", got, len(r.Withdraw))
		}
	})
}

func exampleReopen() *envelope.Reopen {
	return &envelope.Reopen{
		PolicyGeneration: "hourly@14", Key: "eu", Epoch: 3, AsOf: envelope.ReopenPlace{Seq: 9, Index: 1}, AsOfNow: 77,
		Restore: []envelope.ReopenWindow{{
			Start: 0, End: 60, Revision: 2, Digest: [32]byte{1}, Value: []envelope.ReopenField{{Name: "n", Text: "1"}}, First: 3, Last: 4,
			Offsets: []envelope.ReopenOffsets{{Source: "shop", First: 1, Last: 2}}, Events: 1, IDDigest: [16]byte{1}, State: [][]byte{{2}},
			Members: []envelope.ReopenEvent{{Source: "shop", ID: "a", Time: 5, Values: []envelope.Value{{Int: 1, Text: "x"}}}},
		}},
		Retracted: []envelope.ReopenRetracted{{Start: 60, End: 120, Revision: 2, Digest: [32]byte{2}}},
		Add:       []envelope.ReopenEvent{{Source: "shop", ID: "b", Time: 6}},
		Withdraw:  []envelope.ReopenEvent{{Source: "shop", ID: "r", Withdraws: "a", Time: 5}},
	}
}

func TestReopenThatCannotBeIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *envelope.Reopen)
		want   string
	}{
		"no generation":             {func(r *envelope.Reopen) { r.PolicyGeneration = "" }, "policy generation"},
		"no key":                    {func(r *envelope.Reopen) { r.Key = "" }, "1 to 256"},
		"long key":                  {func(r *envelope.Reopen) { r.Key = strings.Repeat("k", 257) }, "1 to 256"},
		"part above parts":          {func(r *envelope.Reopen) { r.Part = 1 }, "part 1 of 0"},
		"part 0":                    {func(r *envelope.Reopen) { r.Parts = 2 }, "part 0 of 2"},
		"empty window":              {func(r *envelope.Reopen) { r.Restore[0].End = 0 }, "ends before it starts"},
		"no revision":               {func(r *envelope.Reopen) { r.Restore[0].Revision = 0 }, "no revision number"},
		"no events":                 {func(r *envelope.Reopen) { r.Restore[0].Events = 0 }, "0 events"},
		"continues with more":       {func(r *envelope.Reopen) { r.Part, r.Parts, r.Restore[0].Revision = 2, 2, 0 }, "more than members"},
		"retracted without number":  {func(r *envelope.Reopen) { r.Retracted[0].Revision = 0 }, "retracted window"},
		"event without id":          {func(r *envelope.Reopen) { r.Add[0].ID = "" }, "both names"},
		"add of a retraction":       {func(r *envelope.Reopen) { r.Add[0].Withdraws = "a" }, "must name a target"},
		"withdraw without a target": {func(r *envelope.Reopen) { r.Withdraw[0].Withdraws = "" }, "must name a target"},
		"no UTF-8":                  {func(r *envelope.Reopen) { r.Add[0].ID = "\xff" }, "UTF-8"},
		"too large":                 {func(r *envelope.Reopen) { r.Restore[0].State[0] = make([]byte, envelope.MaxReopenBytes) }, "numbered parts"},
	} {
		r := exampleReopen()
		c.change(r)
		if got, err := envelope.AppendReopen(nil, r); err == nil || !strings.Contains(err.Error(), c.want) || got != nil {
			t.Errorf("%s: error is %v, want %q", name, err, c.want)
		}
	}
}

func TestReopenIsReadStrictly(t *testing.T) {
	good, err := envelope.AppendReopen(nil, exampleReopen())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"nothing":         {nil, "policy generation"},
		"cut":             {good[:len(good)-1], "cut or malformed"},
		"unknown field":   {append(bytes.Clone(good), 13<<3, 1), "field 13"},
		"wrong wire type": {append(bytes.Clone(good), 1<<3, 1), "field 1"},
		"out of order":    {append(bytes.Clone(good), 3<<3, 3), "not in order"},
		"written zero":    {append(bytes.Clone(good), 7<<3, 0), "not in order"},
		"inside an event": {append(bytes.Clone(good), 11<<3|2, 2, 14<<3, 1), "field 11"},
		"too large":       {make([]byte, envelope.MaxReopenBytes+1), "at most"},
	} {
		if _, err := envelope.ParseReopen(c.body); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want %q", name, err, c.want)
		}
	}
}

func TestPartsOfAReopenJoin(t *testing.T) {
	first, second := exampleReopen(), exampleReopen()
	first.Part, first.Parts, second.Part, second.Parts = 1, 2, 2, 2
	second.Restore = []envelope.ReopenWindow{{Start: 0, End: 60, Members: []envelope.ReopenEvent{{Source: "shop", ID: "c"}}}}
	whole, err := envelope.JoinReopen([]*envelope.Reopen{first, second})
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.Restore) != 1 || len(whole.Restore[0].Members) != 2 || len(whole.Add) != 2 || whole.Parts != 0 || len(first.Restore[0].Members) != 1 {
		t.Fatalf("got %+v", whole)
	}
	if _, err := envelope.JoinReopen([]*envelope.Reopen{second, first}); err == nil {
		t.Error("parts in the wrong order were joined")
	}
	second.Restore[0].Start = 1
	if _, err := envelope.JoinReopen([]*envelope.Reopen{first, second}); err == nil {
		t.Error("members were joined to another window")
	}
}

// FuzzReopen reads what the journal holds: what is taken is written the same way again.
func FuzzReopen(f *testing.F) {
	good, err := envelope.AppendReopen(nil, exampleReopen())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := envelope.ParseReopen(body)
		if err != nil {
			return
		}
		if again, err := envelope.AppendReopen(nil, r); err != nil || !bytes.Equal(again, body) {
			t.Fatalf("%x became %x: %v", body, again, err)
		}
	})
}

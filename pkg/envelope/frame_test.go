package envelope_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"pgregory.net/rapid"
)

func drawEvent(t *rapid.T, times, values int) *envelope.Event {
	text := rapid.StringN(0, 12, 200)
	names := rapid.SampledFrom([]string{"", "shop", "till", "größe", "order.placed@2"})
	ev := &envelope.Event{
		ID: text.Draw(t, "id"), Source: names.Draw(t, "source"), Type: names.Draw(t, "type"), Subject: text.Draw(t, "subject"),
		Key: text.Draw(t, "key"), SourcePartition: rapid.Uint32().Draw(t, "partition"),
		SourceOffset: rapid.Uint64().Draw(t, "offset"), PartitionGeneration: rapid.Uint64().Draw(t, "generation"),
		Op: envelope.Op(rapid.IntRange(0, 1).Draw(t, "op")), Origin: envelope.Origin(rapid.IntRange(0, 3).Draw(t, "origin")),
		Withdraws: text.Draw(t, "withdraws"), IngestTime: envelope.IngestTime(rapid.Int64().Draw(t, "ingest")),
		DataSchema: names.Draw(t, "schema"), TraceParent: text.Draw(t, "trace"),
	}
	copy(ev.Digest[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"))
	if size := rapid.SampledFrom([]int{0, 1, 60, 127, 128, 16383, 16384, 20000}).Draw(t, "size"); size > 0 {
		ev.Data = bytes.Repeat([]byte("x"), size)
	}
	ev.Times = drawTimes(t, times)
	for range values {
		v := envelope.Value{Int: rapid.Int64().Draw(t, "int")}
		if rapid.Bool().Draw(t, "text?") {
			v.Text = text.Draw(t, "text")
		}
		ev.Values = append(ev.Values, v)
	}
	return ev
}

func drawTimes(t *rapid.T, n int) (times []envelope.EventTime) {
	for range n {
		times = append(times, envelope.EventTime(rapid.Int64().Draw(t, "time")))
	}
	return times
}

func drawFrame(t *rapid.T) *envelope.Frame {
	f := &envelope.Frame{Writer: rapid.SampledFrom([]string{"", "w-1", "0b54b6b2"}).Draw(t, "writer"), Number: rapid.Uint64().Draw(t, "number")}
	for i := range rapid.IntRange(0, 3).Draw(t, "extractors") {
		f.Extractors = append(f.Extractors, fmt.Sprintf("t%d@1", i))
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "values") {
		f.Values = append(f.Values, fmt.Sprintf("v%d", i))
	}
	for range rapid.IntRange(0, 6).Draw(t, "records") {
		var r envelope.Record
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0, 1:
			r.Event = drawEvent(t, len(f.Extractors), len(f.Values))
		case 2:
			r.Mark = &envelope.Mark{
				Source: rapid.String().Draw(t, "source"), Partition: rapid.Uint32().Draw(t, "p"), Epoch: rapid.Uint64().Draw(t, "e"),
				Generation: rapid.Uint64().Draw(t, "g"), Offset: rapid.Uint64().Draw(t, "o"), MaxEventTime: drawTimes(t, len(f.Extractors)),
				Pending: rapid.Uint64().Draw(t, "pending"), InFlight: rapid.Uint64().Draw(t, "flight"), Paused: rapid.Bool().Draw(t, "paused"),
				QuietForMs: rapid.Uint64().Draw(t, "quiet"), Finished: rapid.Bool().Draw(t, "finished"),
				IngestNow: envelope.IngestTime(rapid.Int64().Draw(t, "now")), Writer: rapid.String().Draw(t, "w"), Frames: rapid.Uint64().Draw(t, "f"),
			}
		case 3:
			r.Gap = &envelope.Gap{Writer: rapid.String().Draw(t, "w"), First: rapid.Uint64().Draw(t, "first"), Last: rapid.Uint64().Draw(t, "last"), Reason: rapid.String().Draw(t, "reason")}
		case 4:
			r.Reopen = append([]byte{}, rapid.SliceOf(rapid.Byte()).Draw(t, "reopen")...)
		}
		f.Records = append(f.Records, r)
	}
	return f
}

func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawFrame(t)
		data, err := envelope.AppendFrame([]byte("before"), want)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(data, []byte("before")) {
			t.Fatal("AppendFrame overwrote what stood before")
		}
		got, err := envelope.DecodeFrame(data[len("before"):])
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

// The builder writes the same bytes as AppendFrame, frame after frame, and a reused
// reader sees the same records.
func TestFrameBuilderAndReaderAreReusable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := drawFrame(t)
		b := envelope.NewFrameBuilder(first.Writer, first.Extractors, first.Values)
		var r envelope.FrameReader
		for range 3 {
			events := 0
			for i := range first.Records {
				rec := &first.Records[i]
				switch {
				case rec.Event != nil:
					events++
					must(t, b.AddEvent(rec.Event))
				case rec.Mark != nil:
					must(t, b.AddMark(rec.Mark))
				case rec.Gap != nil:
					must(t, b.AddGap(rec.Gap))
				default:
					b.AddReopen(rec.Reopen)
				}
			}
			want, err := envelope.AppendFrame(nil, first)
			must(t, err)
			if b.Events() != events || b.Records() != len(first.Records) || b.Len() != len(want) {
				t.Fatalf("builder counts %d events, %d records, %d bytes", b.Events(), b.Records(), b.Len())
			}
			got := b.Finish(first.Number)
			if !bytes.Equal(got, want) {
				t.Fatalf("builder wrote %x, AppendFrame %x", got, want)
			}
			must(t, r.Reset(got))
			if r.Writer != first.Writer || r.Number != first.Number || !slices.Equal(r.Extractors, first.Extractors) || !slices.Equal(r.Values, first.Values) {
				t.Fatalf("header is %q %d %q %q", r.Writer, r.Number, r.Extractors, r.Values)
			}
			for i := range first.Records {
				rec, more, err := r.Next()
				if err != nil || !more {
					t.Fatalf("record %d: %v, %v", i, more, err)
				}
				if rec.Event != nil && !reflect.DeepEqual(rec.Event.Clone(), first.Records[i].Event.Clone()) {
					t.Fatalf("record %d is %+v, want %+v", i, rec.Event, first.Records[i].Event)
				}
			}
			if _, more, err := r.Next(); more || err != nil {
				t.Fatalf("after the last record: %v, %v", more, err)
			}
			b.Reset()
		}
	})
}

func must(t interface{ Fatal(...any) }, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func TestFrameRefusesWhatCannotBeWritten(t *testing.T) {
	f := func(change func(*envelope.Frame)) *envelope.Frame {
		frame := &envelope.Frame{Writer: "w", Number: 1, Extractors: []string{"t@1"}, Values: []string{"v"}, Records: []envelope.Record{
			{Event: &envelope.Event{ID: "a", Times: make([]envelope.EventTime, 1), Values: make([]envelope.Value, 1)}},
		}}
		change(frame)
		return frame
	}
	for name, frame := range map[string]*envelope.Frame{
		"two times":      f(func(f *envelope.Frame) { f.Records[0].Event.Times = make([]envelope.EventTime, 2) }),
		"no value":       f(func(f *envelope.Frame) { f.Records[0].Event.Values = nil }),
		"bad id":         f(func(f *envelope.Frame) { f.Records[0].Event.ID = "\xff" }),
		"bad source":     f(func(f *envelope.Frame) { f.Records[0].Event.Source = "\xff" }),
		"bad text":       f(func(f *envelope.Frame) { f.Records[0].Event.Values[0].Text = "\xff" }),
		"unknown op":     f(func(f *envelope.Frame) { f.Records[0].Event.Op = 2 }),
		"unknown origin": f(func(f *envelope.Frame) { f.Records[0].Event.Origin = 4 }),
		"empty record":   f(func(f *envelope.Frame) { f.Records[0] = envelope.Record{} }),
		"two fields":     f(func(f *envelope.Frame) { f.Records[0].Gap = &envelope.Gap{} }),
		"mark":           f(func(f *envelope.Frame) { f.Records[0] = envelope.Record{Mark: &envelope.Mark{}} }),
		"bad writer":     f(func(f *envelope.Frame) { f.Writer = "\xff" }),
		"bad reason":     f(func(f *envelope.Frame) { f.Records[0] = envelope.Record{Gap: &envelope.Gap{Reason: "\xff"}} }),
	} {
		if data, err := envelope.AppendFrame([]byte("x"), frame); err == nil || string(data) != "x" {
			t.Errorf("%s: got %d bytes, %v", name, len(data), err)
		}
	}
}

// Fields of a later version are skipped at every level.
func TestFrameSkipsUnknownFields(t *testing.T) {
	unknown := "\xa2\x06\x03abc" + "\xa8\x06\x96\x01" + "\xb1\x0600000000" + "\xbd\x060000" // fields 100 to 103
	digest := "\x52\x20" + strings.Repeat("d", 32)
	event := unknown + "\x0a\x01a" + "\x10\x01" + digest + unknown
	record := unknown + "\x0a" + string(rune(len(event))) + event + unknown
	data := unknown + "\x0a\x01w" + "\x11\x07\x00\x00\x00\x00\x00\x00\x00" + unknown + "\x2a\x04shop" + unknown +
		"\x32" + string([]byte{byte(len(record))&0x7f | 0x80, byte(len(record) >> 7)}) + record + unknown
	f, err := envelope.DecodeFrame([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	if f.Writer != "w" || f.Number != 7 || len(f.Records) != 1 || f.Records[0].Event.ID != "a" || f.Records[0].Event.Source != "shop" {
		t.Errorf("got %+v", f)
	}
}

func TestFrameRefusesDamage(t *testing.T) {
	digest := "\x52\x20" + strings.Repeat("d", 32)
	wrap := func(event string) string {
		return "\x32" + string(rune(len(event)+2)) + "\x0a" + string(rune(len(event))) + event
	}
	for name, data := range map[string]string{
		"field number 0":        "\x00\x01",
		"group":                 "\x0b\x0c",
		"cut length":            "\x0a\x80",
		"length beyond the end": "\x0a\x05ab",
		"huge length":           "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"endless varint":        "\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"varint beyond 64 bits": "\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
		"cut fixed64":           "\x11\x01\x02",
		"number as varint":      "\x10\x07",
		"header behind record":  wrap(digest) + "\x0a\x01w",
		"empty record":          "\x32\x00",
		"two in one record":     "\x32\x04\x22\x00\x22\x00",
		"event without digest":  wrap("\x0a\x01a"),
		"short digest":          wrap("\x52\x02dd"),
		"name that is missing":  wrap("\x10\x01" + digest),
		"unknown op":            wrap("\x68\x02" + digest),
		"unknown origin":        wrap("\x70\x04" + digest),
		"time too many":         wrap("\x3a\x01\x02" + digest),
		"text without value":    wrap("\x4a\x01a" + digest),
		"id as number":          wrap("\x08\x01" + digest),
	} {
		if f, err := envelope.DecodeFrame([]byte(data)); err == nil {
			t.Errorf("%s: got %+v", name, f)
		}
	}
}

// Every cut of a frame is either a shorter frame or an error, never a panic.
func TestFrameCutAnywhere(t *testing.T) {
	data := sampleFrame(t, 3)
	for i := range data {
		if f, err := envelope.DecodeFrame(data[:i]); err == nil && len(f.Records) >= 3 {
			t.Errorf("cut at %d of %d: all records are there", i, len(data))
		}
	}
}

func sampleEvent() *envelope.Event {
	return &envelope.Event{
		ID: "order-0000000000000042", Source: "shop", Key: "eu-west", SourcePartition: 3, SourceOffset: 1<<32 | 9033, PartitionGeneration: 1,
		Times: []envelope.EventTime{1796033700250000}, Values: []envelope.Value{{Int: 1294550}}, IngestTime: 1796034000000000,
		Digest: [32]byte{1, 2, 3}, Data: bytes.Repeat([]byte("j"), 200),
	}
}

func sampleFrame(t testing.TB, events int) []byte {
	b := envelope.NewFrameBuilder("0b54b6b2-6f0c-4f0e-9a53-1d6c5f3f7a10", []string{"order.occurred_at@2"}, []string{"amount"})
	for range events {
		must(t, b.AddEvent(sampleEvent()))
	}
	return b.Finish(7)
}

func FuzzFrame(f *testing.F) {
	f.Add(sampleFrame(f, 2))
	full := &envelope.Frame{Writer: "w", Number: 1, Extractors: []string{"t@1"}, Records: []envelope.Record{
		{Event: &envelope.Event{ID: "a", Source: "s", Type: "x", Times: []envelope.EventTime{envelope.MinEventTime}, Withdraws: "b", Op: envelope.Retract}},
		{Mark: &envelope.Mark{Source: "s", MaxEventTime: []envelope.EventTime{5}, Writer: "w", Frames: 3, Finished: true}},
		{Gap: &envelope.Gap{Writer: "w", First: 1, Last: 2, Reason: "disk"}},
		{Reopen: []byte("r")},
	}}
	data, err := envelope.AppendFrame(nil, full)
	must(f, err)
	f.Add(data)
	f.Add([]byte("\x32\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := envelope.DecodeFrame(data)
		if err != nil {
			return
		}
		again, err := envelope.AppendFrame(nil, frame)
		if err != nil {
			return // text that is not UTF-8 can be read, but is never written
		}
		second, err := envelope.DecodeFrame(again)
		if err != nil {
			t.Fatalf("own frame is refused: %v", err)
		}
		third, err := envelope.AppendFrame(nil, second)
		if err != nil || !bytes.Equal(again, third) {
			t.Fatalf("frame changes: %x, then %x (%v)", again, third, err)
		}
	})
}

func BenchmarkFrameAppend(b *testing.B) {
	builder := envelope.NewFrameBuilder("0b54b6b2-6f0c-4f0e-9a53-1d6c5f3f7a10", []string{"order.occurred_at@2"}, []string{"amount"})
	ev := sampleEvent()
	b.ReportAllocs()
	for b.Loop() {
		if err := builder.AddEvent(ev); err != nil {
			b.Fatal(err)
		}
		if builder.Len() > 64<<10 {
			builder.Reset()
		}
	}
}

func BenchmarkFrameRead(b *testing.B) {
	data := sampleFrame(b, 200)
	var r envelope.FrameReader
	b.ReportAllocs()
	events := 0
	for b.Loop() {
		if err := r.Reset(data); err != nil {
			b.Fatal(err)
		}
		for {
			_, more, err := r.Next()
			if err != nil {
				b.Fatal(err)
			}
			if !more {
				break
			}
			events++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
}

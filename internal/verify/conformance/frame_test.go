// Package conformance_test checks that what Tidemark publishes about its encodings and
// what it writes are the same thing.
package conformance_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

func compile(t *testing.T, file string) protoreflect.FileDescriptor {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "..", "..", "pkg", "schema", file))
	if err != nil {
		t.Fatal(err)
	}
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(map[string]string{file: string(source)}),
	}}
	files, err := compiler.Compile(context.Background(), file)
	if err != nil {
		t.Fatal(err)
	}
	return files[0]
}

func sample() *envelope.Frame {
	return &envelope.Frame{
		Writer: "0b54b6b2", Number: 41, Extractors: []string{"a@1", "b@2"}, Values: []string{"amount", "note"},
		Records: []envelope.Record{
			{Event: &envelope.Event{
				ID: "o-1", Source: "shop", Type: "order.placed", Subject: "s", Key: "São Paulo", SourcePartition: 3, SourceOffset: 2<<32 | 9,
				PartitionGeneration: 4, Times: []envelope.EventTime{1796033700250000, -5}, Digest: [32]byte{9, 8, 7},
				Values: []envelope.Value{{Int: -1250}, {Text: "café"}}, Op: envelope.Retract, Origin: envelope.OriginRepair,
				Withdraws: "o-0", IngestTime: 1796034000000000, DataSchema: "x/3", TraceParent: "tp", Data: bytes.Repeat([]byte("d"), 20000),
			}},
			{Event: &envelope.Event{ID: "o-2", Source: "shop", Times: make([]envelope.EventTime, 2), Values: make([]envelope.Value, 2)}},
			{Mark: &envelope.Mark{
				Source: "shop", Partition: 1, Epoch: 2, Generation: 3, Offset: 4, MaxEventTime: []envelope.EventTime{envelope.MinEventTime, 6},
				Pending: 7, InFlight: 8, Paused: true, QuietForMs: 9, Finished: true, IngestNow: 10, Writer: "0b54b6b2", Frames: 11,
			}},
			{Gap: &envelope.Gap{Writer: "w", First: 1, Last: 2, Reason: "disk"}},
			{Reopen: []byte("opaque")},
		},
	}
}

// The published frame.proto reads what the hand-written codec writes, field by field,
// and knows every byte of it.
func TestFrameProtoReadsFrames(t *testing.T) {
	file := compile(t, "frame.proto")
	data, err := envelope.AppendFrame(nil, sample())
	if err != nil {
		t.Fatal(err)
	}
	message := dynamicpb.NewMessage(file.Messages().ByName("Frame"))
	if err := proto.Unmarshal(data, message); err != nil {
		t.Fatal(err)
	}
	noUnknown(t, message)
	names := list(message, "names")
	records := list(message, "records")
	if len(names) != 4 || len(records) != 5 {
		t.Fatalf("got %d names and %d records", len(names), len(records))
	}
	event := field(records[0].Message(), "event").Message()
	mark := field(records[2].Message(), "mark").Message()
	gap := field(records[3].Message(), "gap").Message()
	for what, c := range map[string][2]any{
		"writer":               {field(message, "writer").String(), "0b54b6b2"},
		"number":               {field(message, "number").Uint(), uint64(41)},
		"extractors":           {fmt.Sprint(list(message, "extractors")), "[a@1 b@2]"},
		"values":               {fmt.Sprint(list(message, "values")), "[amount note]"},
		"names":                {fmt.Sprint(names), "[shop order.placed x/3 0b54b6b2]"},
		"id":                   {field(event, "id").String(), "o-1"},
		"source":               {field(event, "source_name").Uint(), uint64(1)},
		"type":                 {field(event, "type_name").Uint(), uint64(2)},
		"data schema":          {field(event, "data_schema_name").Uint(), uint64(3)},
		"source partition":     {field(event, "source_partition").Uint(), uint64(3)},
		"source offset":        {field(event, "source_offset").Uint(), uint64(2<<32 | 9)},
		"partition generation": {field(event, "partition_generation").Uint(), uint64(4)},
		"key":                  {field(event, "key").String(), "São Paulo"},
		"times":                {fmt.Sprint(list(event, "times")), "[1796033700250000 -5]"},
		"ints":                 {fmt.Sprint(list(event, "ints")), "[-1250 0]"},
		"texts":                {fmt.Sprint(list(event, "texts")), "[ café]"},
		"digest":               {len(field(event, "digest").Bytes()), 32},
		"ingest time":          {field(event, "ingest_time").Int(), int64(1796034000000000)},
		"data":                 {len(field(event, "data").Bytes()), 20000},
		"op":                   {field(event, "op").Enum(), protoreflect.EnumNumber(1)},
		"origin":               {field(event, "origin").Enum(), protoreflect.EnumNumber(3)},
		"withdraws":            {field(event, "withdraws").String(), "o-0"},
		"subject":              {field(event, "subject").String(), "s"},
		"trace parent":         {field(event, "trace_parent").String(), "tp"},
		"mark source":          {field(mark, "source_name").Uint(), uint64(1)},
		"mark partition":       {field(mark, "partition").Uint(), uint64(1)},
		"mark epoch":           {field(mark, "epoch").Uint(), uint64(2)},
		"mark generation":      {field(mark, "generation").Uint(), uint64(3)},
		"mark offset":          {field(mark, "offset").Uint(), uint64(4)},
		"mark times":           {fmt.Sprint(list(mark, "max_event_time")), "[-9223372036854775808 6]"},
		"mark pending":         {field(mark, "pending").Uint(), uint64(7)},
		"mark in flight":       {field(mark, "in_flight").Uint(), uint64(8)},
		"mark paused":          {field(mark, "paused").Bool(), true},
		"mark quiet":           {field(mark, "quiet_for_ms").Uint(), uint64(9)},
		"mark finished":        {field(mark, "finished").Bool(), true},
		"mark now":             {field(mark, "ingest_now").Int(), int64(10)},
		"mark writer":          {field(mark, "writer_name").Uint(), uint64(4)},
		"mark frames":          {field(mark, "frames").Uint(), uint64(11)},
		"gap writer":           {field(gap, "writer").String(), "w"},
		"gap first":            {field(gap, "first").Uint(), uint64(1)},
		"gap last":             {field(gap, "last").Uint(), uint64(2)},
		"gap reason":           {field(gap, "reason").String(), "disk"},
		"reopen":               {string(field(records[4].Message(), "reopen").Bytes()), "opaque"},
	} {
		if c[0] != c[1] {
			t.Errorf("%s is %v, want %v", what, c[0], c[1])
		}
	}
}

// The other way round: what any protobuf library writes, the hand-written codec reads.
func TestFrameCodecReadsProtobuf(t *testing.T) {
	file := compile(t, "frame.proto")
	data, err := envelope.AppendFrame(nil, sample())
	if err != nil {
		t.Fatal(err)
	}
	message := dynamicpb.NewMessage(file.Messages().ByName("Frame"))
	if err := proto.Unmarshal(data, message); err != nil {
		t.Fatal(err)
	}
	foreign, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	frame, err := envelope.DecodeFrame(foreign)
	if err != nil {
		t.Fatal(err)
	}
	again, err := envelope.AppendFrame(nil, frame)
	if err != nil || !bytes.Equal(again, data) {
		t.Errorf("the frame is not the same after a foreign library wrote it (%v)", err)
	}
}

func field(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(name))
}

func list(m protoreflect.Message, name protoreflect.Name) []protoreflect.Value {
	values := field(m, name).List()
	out := make([]protoreflect.Value, values.Len())
	for i := range out {
		out[i] = values.Get(i)
	}
	return out
}

func noUnknown(t *testing.T, m protoreflect.Message) {
	t.Helper()
	if len(m.GetUnknown()) > 0 {
		t.Errorf("%s holds fields that frame.proto does not know: %x", m.Descriptor().FullName(), m.GetUnknown())
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				noUnknown(t, v.List().Get(i).Message())
			}
		case f.Message() != nil:
			noUnknown(t, v.Message())
		}
		return true
	})
}

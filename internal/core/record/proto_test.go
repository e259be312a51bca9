package record_test

import (
	"bytes"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"pgregory.net/rapid"

	"github.com/tidemark-mesh/tidemark/internal/core/record"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// The hand-written codec writes what the published schema says: a protobuf library finds
// no unknown field in it and writes the same bytes again.
func TestBytesFollowThePublishedSchema(t *testing.T) {
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{"../../../pkg/schema"}}}
	files, err := compiler.Compile(t.Context(), "journal.proto")
	if err != nil {
		t.Fatal(err)
	}
	messages := files[0].Messages()
	check := func(t *rapid.T, name protoreflect.Name, data []byte) *dynamicpb.Message {
		m := dynamicpb.NewMessage(messages.ByName(name))
		if err := proto.Unmarshal(data, m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if unknown := m.GetUnknown(); len(unknown) > 0 {
			t.Fatalf("%s holds unknown fields: %x", name, unknown)
		}
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%s: got\n%x, protobuf writes\n%x (%v)", name, data, again, err)
		}
		return m
	}
	rapid.Check(t, func(t *rapid.T) {
		r := drawProposal(t)
		m := check(t, "Proposal", record.AppendProposal(nil, r, revision.Digest{1})[1:])
		if got := m.Get(m.Descriptor().Fields().ByName("window_end")).Int(); got != int64(r.Window.End) {
			t.Fatalf("window_end is %d, want %d", got, r.Window.End)
		}
		if got := m.Get(m.Descriptor().Fields().ByName("op")).Enum(); (got == 2) != (r.Op == revision.Retract) {
			t.Fatalf("op is %d for %s", got, r.Op)
		}
		check(t, "Late", record.AppendLate(nil, &record.Late{Event: drawEvent(t), Window: r.Window, W: r.Watermark.At, None: true})[1:])
		check(t, "Conflict", record.AppendConflict(nil, &record.Conflict{Event: drawEvent(t), Rule: r.Cause})[1:])
		check(t, "Refused", record.AppendRefused(nil, &record.Refused{Key: r.Key, Epoch: r.Revision, AsOf: drawEvent(t).Place, Why: r.Cause})[1:])
	})
}

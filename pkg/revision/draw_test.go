package revision_test

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"pgregory.net/rapid"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

func drawDigest(t *rapid.T, label string) revision.Digest {
	return revision.Digest(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, label))
}

// drawTime draws any time that RFC 3339 can say, and the two bounds.
func drawTime(t *rapid.T, label string) envelope.EventTime {
	return envelope.EventTime(rapid.OneOf(
		rapid.Int64Range(-62_167_219_200_000_000, 253_402_300_799_999_999),
		rapid.Map(rapid.Int64Range(-62_167_219_200, 253_402_300_799), func(s int64) int64 { return s * 1_000_000 }),
		rapid.SampledFrom([]int64{int64(envelope.MinEventTime), int64(envelope.MaxEventTime), 0, -1}),
	).Draw(t, label))
}

func drawFields(t *rapid.T, label string) []revision.Field {
	fields := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) revision.Field {
		f := revision.Field{Name: rapid.String().Draw(t, "name"), Quoted: rapid.Bool().Draw(t, "quoted")}
		if f.Quoted {
			f.Text = rapid.String().Draw(t, "text")
		} else {
			f.Text = strconv.FormatInt(rapid.Int64().Draw(t, "number"), 10)
		}
		return f
	}), 0, 4, func(f revision.Field) string { return folded(f.Name) }).Draw(t, label)
	if len(fields) == 0 {
		return nil
	}
	slices.SortFunc(fields, func(a, b revision.Field) int { return cmp.Compare(a.Name, b.Name) })
	return fields
}

// folded answers one text for all names that differ only in case: documents refuse such
// twins, and so does the reader of strict JSON.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, name)
}

// drawRevision draws revisions of every shape, also such as break the rules of Validate.
func drawRevision(t *rapid.T) *revision.Revision {
	text, optional := rapid.String(), rapid.OneOf(rapid.Just(""), rapid.String())
	r := &revision.Revision{
		Stream:           text.Draw(t, "stream"),
		Job:              text.Draw(t, "job"),
		PolicyGeneration: text.Draw(t, "policyGeneration"),
		PolicyDigest:     text.Draw(t, "policyDigest"),
		Key:              text.Draw(t, "key"),
		Window:           revision.Window{Start: drawTime(t, "start"), End: drawTime(t, "end")},
		LogicalWindowID:  text.Draw(t, "logicalWindowID"),
		ProjectionID:     text.Draw(t, "projectionID"),
		ResultID:         optional.Draw(t, "resultID"),
		Op:               revision.Op(text.Draw(t, "op")),
		Revision:         rapid.Uint64().Draw(t, "revision"),
		State:            revision.OutputState(text.Draw(t, "state")),
		Firing:           revision.Firing(text.Draw(t, "firing")),
		Origin:           envelope.Origin(rapid.IntRange(0, 3).Draw(t, "origin")),
		ValueChanged:     rapid.Bool().Draw(t, "valueChanged"),
		Value:            drawFields(t, "value"),
		Delta:            drawFields(t, "delta"),
		AggregateDigest:  drawDigest(t, "aggregateDigest"),
		Watermark:        revision.Watermark{At: drawTime(t, "at"), Data: drawTime(t, "data")},
		Cause:            text.Draw(t, "cause"),
		SupersededBy:     optional.Draw(t, "supersededBy"),
		Epoch:            rapid.Uint64().Draw(t, "epoch"),
		TraceParent:      optional.Draw(t, "traceParent"),
		Inputs: revision.Inputs{
			Partition: rapid.IntRange(0, 99).Draw(t, "partition"),
			First:     rapid.Uint64().Draw(t, "first"),
			Last:      rapid.Uint64().Draw(t, "last"),
			Events:    rapid.Uint64().Draw(t, "events"),
			IDDigest:  [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "idDigest")),
		},
	}
	if rapid.Bool().Draw(t, "second") {
		r.Predecessor = &revision.Predecessor{Revision: rapid.Uint64().Draw(t, "before"), Digest: drawDigest(t, "digest")}
	}
	for range rapid.IntRange(0, 3).Draw(t, "offsets") {
		r.Inputs.Offsets = append(r.Inputs.Offsets, revision.OffsetRange{
			Source: text.Draw(t, "source"), Partition: rapid.Uint32().Draw(t, "sourcePartition"),
			First: rapid.Uint64().Draw(t, "from"), Last: rapid.Uint64().Draw(t, "to"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(t, "supersedes") {
		r.Supersedes = append(r.Supersedes, revision.Supersession{
			ProjectionID: text.Draw(t, "projection"), Revision: rapid.Uint64().Draw(t, "old"),
		})
	}
	return r
}

package conformance

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// Frames are lost at random and declared lost only behind the marks that miss them: core
// and oracle pass those marks alike, and finding more GAP records than a mark needs
// changes no output.
func TestGapsBehindTheirMarks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := newJournalGen(rt, allKinds()...)
		p := newPair(rt, g.stream, g.policy)
		all := rapid.Bool().Draw(rt, "declare all that is found")
		var frames []*envelope.Frame
		var gaps []envelope.Gap
		for n := range uint64(rapid.IntRange(5, 40).Draw(rt, "frames")) {
			f := g.frame()
			f.Writer, f.Number = "w", n+1
			for i := range f.Records {
				if m := f.Records[i].Mark; m != nil {
					m.Frames = n
				}
			}
			if rapid.IntRange(0, 6).Draw(rt, "lost") == 0 {
				gaps = append(gaps, envelope.Gap{Writer: "w", First: n + 1, Last: n + 1, Reason: "lost"})
				continue
			}
			frames = append(frames, f)
		}
		for i := range gaps {
			frames = append(frames, &envelope.Frame{Records: []envelope.Record{{Gap: &gaps[i]}}})
		}
		p.oracle.LookAhead(func() ([]envelope.Gap, error) { return gaps, nil })
		for n, f := range frames {
			p.gapped(f, gaps, all, fmt.Sprintf("frame %d", n))
		}
	})
}

// gapped is frame over marks that wait for a GAP.
func (p *pair) gapped(f *envelope.Frame, gaps []envelope.Gap, all bool, what string) {
	p.tb.Helper()
	p.seq++
	p.op.BeginFrame(p.seq, f)
	p.enter(p.seq, f)
	for i := range f.Records {
		for err := p.op.Apply(i, &f.Records[i]); err != nil; err = p.op.Apply(i, &f.Records[i]) {
			var missing *window.MissingFramesError
			if !errors.As(err, &missing) || missing.Seq != p.seq {
				p.tb.Fatalf("%s: %v", what, err)
			}
			before := p.op.Position()
			for n := range gaps {
				if g := &gaps[n]; all || g.First >= missing.First && g.Last <= missing.Last {
					if err := p.op.Declare(g); err != nil {
						p.tb.Fatal(err)
					}
				}
			}
			if p.op.Position() != before {
				p.tb.Fatalf("%s: the position moved while a mark waited", what)
			}
		}
		p.take()
	}
	if err := p.oracle.Frame(p.seq, f, -1); err != nil {
		p.tb.Fatalf("%s: oracle: %v", what, err)
	}
	p.op.EndFrame()
	p.compare(what)
}

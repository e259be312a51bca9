package gates

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// readQuarantine adds the source positions of quarantined events: what is kept there is
// not lost. A resend after a lost acknowledgement counts once.
func readQuarantine(ctx context.Context, js jetstream.JetStream, t *tally, bs string, all *positions, report *Report) error {
	stream := subject.QuarantineStream(bs)
	last, err := journal.LastSeq(ctx, js, stream, "")
	if err != nil || last == 0 {
		return err
	}
	r, err := journal.Read(ctx, js, stream, 0, 1)
	if err != nil {
		return err
	}
	defer r.Close()
	type number struct {
		writer string
		n      uint64
	}
	had := map[number]bool{}
	for seq := uint64(0); seq < last; {
		m, err := r.Next(ctx)
		if err != nil {
			return err
		}
		seq = m.Seq
		if m.Subject == subject.QuarantineDisposition(bs) {
			continue
		}
		q, err := envelope.DecodeQuarantine(m.Data)
		if err != nil {
			return fmt.Errorf("stream %s sequence %d: %w", stream, seq, err)
		}
		delete(all.replays, replay{q.Source, seq})
		id := number{q.Writer, q.Number}
		if had[id] {
			continue
		}
		had[id] = true
		report.Quarantined++
		if q.Offset != 0 {
			all.add(q.Source, q.Partition, q.Offset, &t.twice)
		}
	}
	return nil
}

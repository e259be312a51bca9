package windower

import (
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// previewer publishes previews as best it can, in a goroutine of its own: the loop never
// waits for it, and what cannot be published at once is left out.
type previewer struct {
	nc     *nats.Conn
	part   partition
	log    zerolog.Logger
	rounds chan []earlyMessage // one waits at most
	ended  chan struct{}
}

// earlyMessage is one preview to be published.
type earlyMessage struct {
	subject string
	data    []byte
}

func startPreviewer(nc *nats.Conn, part partition, log zerolog.Logger) *previewer {
	p := &previewer{nc: nc, part: part, log: log, rounds: make(chan []earlyMessage, 1), ended: make(chan struct{})}
	go p.run()
	return p
}

// busy tells whether a round still waits: the next one is left out then.
func (p *previewer) busy() bool { return len(p.rounds) > 0 }

func (p *previewer) run() {
	defer close(p.ended)
	for round := range p.rounds {
		for i := range round {
			if err := p.publish(&round[i]); err != nil {
				p.log.Debug().Err(err).Stringer("partition", p.part).Int("left", len(round)-i).Msg("windower: previews were left out")
				break
			}
		}
	}
}

// publish asks for no acknowledgement. While the connection is down nothing is handed to
// it: its buffer is for what must not be lost.
func (p *previewer) publish(m *earlyMessage) error {
	if !p.nc.IsConnected() {
		return nats.ErrDisconnected
	}
	return p.nc.PublishMsg(&nats.Msg{Subject: m.subject, Data: m.data, Header: nats.Header{
		subject.HeaderSchema:       {revision.PreviewSchema},
		subject.HeaderExpectStream: {subject.EarlyStream(p.part.stream)},
	}})
}

// end waits for the round at hand.
func (p *previewer) end() {
	close(p.rounds)
	<-p.ended
}

// previews answers what is to be shown now; nil for nothing.
func (f *fold) previews() (round []earlyMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.op.PreviewsDue() {
		return nil
	}
	f.op.Previews(func(p *revision.Preview) {
		round = append(round, earlyMessage{
			subject: subject.Early(f.part.stream, f.part.job, f.part.generation, p.Key),
			data:    p.AppendJSON(nil),
		})
	})
	return round
}

// preview publishes what is due, between two frames.
func (l *live) preview() {
	if l.early == nil || l.early.busy() {
		return
	}
	if round := l.fold.previews(); len(round) > 0 {
		l.early.rounds <- round // there is room: only this loop sends
	}
}

package windower

import (
	"encoding/json"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// question is the body of a request on subject.WindowerStatus; an empty body asks for no
// window.
type question struct {
	Key string              `json:"key"`
	At  *envelope.EventTime `json:"at"`
}

// answer is what the owner of a windows journal says about its state. W and Wdata are
// those of the last mark taken in; committed is what readers have.
type answer struct {
	Stream     string                   `json:"stream"`
	Job        string                   `json:"job"`
	Generation int                      `json:"generation"`
	Partition  int                      `json:"partition"`
	Instance   string                   `json:"instance"`
	Role       role                     `json:"role"`
	Epoch      uint64                   `json:"epoch"`
	Halted     string                   `json:"halted,omitempty"`
	W          envelope.EventTime       `json:"w"`
	Wdata      envelope.EventTime       `json:"wdata"`
	Partitions []window.PartitionStatus `json:"partitions"`
	Position   json.RawMessage          `json:"position,omitempty"`
	Committed  *committed               `json:"committed,omitempty"`
	Sizes      sizes                    `json:"sizes"`
	Window     *window.OpenWindow       `json:"window,omitempty"`
}

// committed is the last accepted COMMIT.
type committed struct {
	Seq     uint64             `json:"seq"`
	W       envelope.EventTime `json:"w"`
	Wdata   envelope.EventTime `json:"wdata"`
	Records uint64             `json:"records"`
	Inputs  []json.RawMessage  `json:"inputs"`
}

type sizes struct {
	Windows int `json:"windows"`
	IDs     int `json:"ids"`
	Keys    int `json:"keys"`
}

type failure struct {
	Error failureText `json:"error"`
}

type failureText struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// serveStatus answers questions about the partition until the function it answers is
// called. A unit that waits for its lease stays silent: the owner answers.
func (u *unit) serveStatus() (stop func()) {
	sub, err := u.nc.Subscribe(u.part.statusSubject(), func(m *nats.Msg) {
		if reply := u.reply(m.Data); reply != nil {
			if err := m.Respond(reply); err != nil {
				u.log.Debug().Err(err).Stringer("partition", u.part).Msg("windower: status reply")
			}
		}
	})
	if err != nil {
		u.log.Warn().Err(err).Stringer("partition", u.part).Msg("windower: status requests cannot be answered")
		return func() {}
	}
	return func() { _ = sub.Unsubscribe() }
}

// reply answers a request's body, nil when another process has to.
func (u *unit) reply(body []byte) []byte {
	u.mu.Lock()
	if u.role == roleWaiting {
		u.mu.Unlock()
		return nil
	}
	a := answer{
		Stream: u.part.stream, Job: u.part.job, Generation: u.part.generation, Partition: u.part.number,
		Instance: u.owner, Role: u.role, Epoch: u.epoch, W: envelope.MinEventTime, Wdata: envelope.MinEventTime,
		Partitions: []window.PartitionStatus{}, Committed: committedOf(u.lastSeq, u.last),
	}
	if u.role == roleHalted {
		a.Halted = u.problem
	}
	f := u.fold
	u.mu.Unlock()

	var q question
	if len(body) > 0 {
		if err := json.Unmarshal(body, &q); err != nil {
			return encode(failure{failureText{
				Code: "bad-request", Message: "the request is no JSON object with key and at: " + err.Error(),
				Hint: `send {"key":"eu-west","at":"2026-11-30T10:00:00Z"}, or nothing`,
			}})
		}
	}
	if f != nil {
		f.describe(&a, q)
	}
	return encode(a)
}

// describe fills in what the operator holds.
func (f *fold) describe(a *answer, q question) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a.W, a.Wdata, a.Partitions = f.op.Status()
	a.Sizes.Windows, a.Sizes.IDs, a.Sizes.Keys = f.op.Sizes()
	position := f.op.Position()
	position.Stream = f.part.eventsStream()
	a.Position = position.AppendJSON(nil)
	if q.Key == "" || q.At == nil {
		return
	}
	if w, ok := f.op.Find(q.Key, *q.At); ok {
		a.Window = &w
	}
}

func committedOf(seq uint64, c *revision.Commit) *committed {
	if c == nil {
		return nil
	}
	out := &committed{Seq: seq, W: c.W, Wdata: c.Wdata, Records: c.Records}
	for i := range c.Inputs {
		out.Inputs = append(out.Inputs, c.Inputs[i].AppendJSON(nil))
	}
	return out
}

// encode writes what cannot fail to be written.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return []byte(`{"error":{"code":"internal","message":"the answer could not be written as JSON"}}`)
	}
	return text
}

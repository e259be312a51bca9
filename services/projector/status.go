package projector

import (
	"encoding/json"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// streamStatus says how far the views of this process reach.
type streamStatus struct {
	Stream     string            `json:"stream"`
	Instance   string            `json:"instance"` // the process that answers; over NATS every one does
	Ready      bool              `json:"ready"`    // its views answer queries
	Aliases    []aliasInfo       `json:"aliases"`
	Partitions []partitionStatus `json:"partitions"`
}

// partitionStatus is one (job, generation, key partition). Positions are those of the
// COMMIT applied last: everything before Windows is judged, everything before Events is
// in accepted revisions as far as it changes any.
type partitionStatus struct {
	Job        string             `json:"job"`
	Generation int                `json:"generation"`
	Partition  int                `json:"partition"`
	Role       role               `json:"role"`
	Problem    string             `json:"problem,omitempty"`
	W          envelope.EventTime `json:"w"`
	Wdata      envelope.EventTime `json:"wdata"`
	Windows    json.RawMessage    `json:"windows"`
	Events     json.RawMessage    `json:"events"`
	View       viewStatus         `json:"view"`
	Retired    bool               `json:"retired"`
	Revisions  uint64             `json:"revisions"`
}

type viewStatus struct {
	Stream string `json:"stream"`
	Fence  uint64 `json:"fence"` // sequence of the last fence record applied
}

// status answers every partition of every generation, in order.
func (st *stream) status() *streamStatus {
	s := &streamStatus{Stream: st.doc.Name, Instance: st.instance, Ready: st.askReady(), Aliases: []aliasInfo{}, Partitions: []partitionStatus{}}
	for _, a := range st.epoch() {
		s.Aliases = append(s.Aliases, aliasInfo{Job: a.Job, Canonical: a.Canonical, Epoch: a.Epoch})
	}
	for _, u := range st.units() {
		s.Partitions = append(s.Partitions, u.status())
	}
	return s
}

func (u *unit) status() partitionStatus {
	s := partitionStatus{
		Job: u.part.job, Generation: u.part.generation, Partition: u.part.number,
		Role: u.state(), Problem: u.halted(),
	}
	c := freshCommit(u.part)
	if v := u.opened(); v != nil {
		at := v.at()
		s.View, s.Retired = viewStatus{Stream: at.Stream, Fence: at.Fence}, at.Retired
		if at.Commit != nil {
			c = *at.Commit
		}
	}
	s.W, s.Wdata, s.Revisions = c.W, c.Wdata, c.Records
	s.Windows, s.Events = c.Inputs[0].AppendJSON(nil), c.Inputs[1].AppendJSON(nil)
	return s
}

// freshCommit is what stands before the first COMMIT of a partition: its inputs from
// their first message on. Inputs[0] is the windows journal; Inputs[1] is the events
// journal as far as the last windows COMMIT that is covered whole.
func freshCommit(p partition) revision.Commit {
	c := revision.NewCommit()
	c.Inputs = []revision.InputPosition{
		{Stream: p.windowsStream(), Seq: 1},
		{Stream: subject.EventsStream(p.stream, p.number), Seq: 1},
	}
	for _, name := range []string{countAccepted, countConflict, countDuplicate, countLate, countRefused, countWrong} {
		c.Counts = append(c.Counts, revision.Count{Name: name})
	}
	return c
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// explanation is why a window is in its state.
type explanation struct {
	Stream           string                   `json:"stream"`
	PolicyGeneration string                   `json:"policyGeneration"`
	Key              string                   `json:"key"`
	Window           *revision.Window         `json:"window,omitempty"` // a session: absent when none holds the time
	KeyPartition     int                      `json:"keyPartition"`
	State            revision.OutputState     `json:"state"`
	Why              []string                 `json:"why"`
	Watermark        envelope.EventTime       `json:"watermark"`
	WatermarkData    envelope.EventTime       `json:"watermarkData"`
	Partitions       []window.PartitionStatus `json:"sourcePartitions"`
	Events           uint64                   `json:"events"` // members; of a window that is held no more, those of its last revision
	Revisions        []windowRow              `json:"revisions"`

	names windowNames // of what revisions replace and are replaced by
}

// windowerStatus is the answer of the owner of a windows journal.
type windowerStatus struct {
	W          envelope.EventTime       `json:"w"`
	Wdata      envelope.EventTime       `json:"wdata"`
	Partitions []window.PartitionStatus `json:"partitions"`
	Window     *window.OpenWindow       `json:"window"`
}

func (c *cli) explainCmd() *cobra.Command {
	var key, at, job string
	cmd := &cobra.Command{
		Use:   "explain STREAM --key KEY --at TIME",
		Short: "Say why a window is in its state, and who holds the watermark",
		Long: `Say why the windows of a key that hold a time are in their state: watermark, who holds
it and by how much, members, revisions; of a session also what would extend it, when it
can close at the earliest, and what it became. Every job and generation of the stream is
explained; -o json prints one object, or an array where there are several.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := envelope.ParseEventTime(at)
			if err != nil {
				return usage(fmt.Errorf("--at: %w", err))
			}
			conn, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			ctx, cancel := c.deadline(cmd.Context())
			defer cancel()
			all, err := c.explain(ctx, conn, args[0], job, key, t)
			if err != nil {
				return err
			}
			return c.printExplanations(all)
		},
	}
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "key of the window")
	f.StringVar(&at, "at", "", "a time inside the window (RFC 3339)")
	f.StringVar(&job, "job", "", "only this job")
	for _, name := range []string{"key", "at"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flag was declared above
		}
	}
	return cmd
}

// explain asks the windower and the projector about the windows of key that hold at, for
// every policy generation of the stream.
func (c *cli) explain(ctx context.Context, conn *natsio.Conn, stream, job, key string, at envelope.EventTime) ([]explanation, error) {
	if err := knownStream(ctx, conn.JS, stream); err != nil {
		return nil, err
	}
	snapshot, err := config.Load(ctx, conn.JS)
	if err != nil {
		return nil, err
	}
	var all []explanation
	for _, e := range snapshot.Policies {
		p := e.Policy
		if p.Stream != stream || job != "" && p.Job != job {
			continue
		}
		q := &inquiry{cli: c, conn: conn, policy: p, key: key, at: at, partition: keyPartition(snapshot, stream, key)}
		list, err := q.answer(ctx, streamOf(snapshot, stream))
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	if len(all) == 0 {
		return nil, noJob(snapshot, stream, job)
	}
	return all, nil
}

// inquiry asks about one time of one key under one policy generation.
type inquiry struct {
	*cli
	conn      *natsio.Conn
	policy    *policy.StreamTimePolicy
	key       string
	at        envelope.EventTime
	partition int // key partition
}

// answer explains every window that holds the time: one, or several that hop.
func (q *inquiry) answer(ctx context.Context, bs *policy.BusinessStream) ([]explanation, error) {
	if q.policy.Window.Kind == policy.Session {
		x, err := q.session(ctx)
		return []explanation{x}, err
	}
	windows, err := windowsAt(bs, q.policy, q.at)
	if err != nil {
		return nil, err
	}
	list := make([]explanation, len(windows))
	for i, w := range windows {
		if list[i], err = q.window(ctx, w); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// ask begins an explanation with what the windower says about the window of at.
func (q *inquiry) ask(ctx context.Context, at envelope.EventTime) (explanation, *window.OpenWindow, error) {
	p := q.policy
	x := explanation{
		Stream: p.Stream, PolicyGeneration: p.PolicyGeneration(), Key: q.key, KeyPartition: q.partition,
		State: revision.Open, Revisions: []windowRow{},
	}
	var status windowerStatus
	request := map[string]any{"key": q.key, "at": at}
	if err := q.cli.ask(ctx, q.conn.NC, subject.WindowerStatus(p.Stream, p.Job, p.Generation, q.partition), "windower", request, &status); err != nil {
		return x, nil, err
	}
	x.Watermark, x.WatermarkData, x.Partitions = status.W, status.Wdata, status.Partitions
	if status.Window != nil {
		x.Events = status.Window.Events
	}
	return x, status.Window, nil
}

// rows answers the current rows or the ledger of the key in a range.
func (q *inquiry) rows(ctx context.Context, from, to envelope.EventTime, history bool) (rows []windowRow, err error) {
	ask := windowQuery{Key: q.key, Generation: q.policy.PolicyGeneration(), History: history, From: from.String(), To: to.String()}
	err = q.eachWindow(ctx, q.conn.NC, q.policy.Stream, ask, func(w *windowRow) error {
		rows = append(rows, *w)
		return nil
	})
	return rows, err
}

// window explains a window of fixed bounds. Of several that hold a time each starts last
// among those that hold its start, so by its start the windower is asked.
func (q *inquiry) window(ctx context.Context, w revision.Window) (explanation, error) {
	x, held, err := q.ask(ctx, w.Start)
	if err != nil {
		return x, err
	}
	x.Window = &w
	past, err := q.rows(ctx, w.Start, w.Start+1, true)
	if err != nil {
		return x, err
	}
	for i := range past {
		row := &past[i]
		if held == nil {
			if x.Events, err = membersOf(row.Record); err != nil {
				return x, err
			}
		}
		x.State, row.Record = revision.OutputState(row.State), nil
		x.Revisions = append(x.Revisions, *row)
	}
	x.reason(q.policy, held)
	return x, nil
}

// noJob says which jobs a stream has instead of the one that was asked for.
func noJob(snapshot config.Snapshot, stream, job string) error {
	var jobs []string
	for _, e := range snapshot.Policies {
		if e.Policy.Stream == stream && !slices.Contains(jobs, e.Policy.Job) {
			jobs = append(jobs, e.Policy.Job)
		}
	}
	if len(jobs) == 0 {
		return usage(fmt.Errorf("stream %s has no policy; apply one with `tidemark apply`", stream))
	}
	return usage(fmt.Errorf("stream %s has no job %s; it has %s", stream, job, strings.Join(jobs, ", ")))
}

// membersOf answers how many events a published revision is made of.
func membersOf(record json.RawMessage) (uint64, error) {
	r, err := revision.ParseJSON(record)
	if err != nil {
		return 0, err
	}
	return r.Inputs.Events, nil
}

func streamOf(s config.Snapshot, name string) *policy.BusinessStream {
	for _, e := range s.Streams {
		if e.Stream.Name == name {
			return e.Stream
		}
	}
	return nil
}

func keyPartition(s config.Snapshot, stream, key string) int {
	for _, e := range s.Streams {
		if e.Stream.Name == stream {
			return admission.KeyPartition(key, e.Stream.Partitions)
		}
	}
	return 0
}

// printExplanations prints one object as such and several as a list.
func (c *cli) printExplanations(all []explanation) error {
	switch {
	case c.output == "table":
		for i := range all {
			if i > 0 {
				fmt.Fprintln(c.out)
			}
			if err := c.printExplanation(&all[i]); err != nil {
				return err
			}
		}
		return nil
	case len(all) == 1:
		return c.object(&all[0])
	}
	rows := make([]row, len(all))
	for i := range all {
		rows[i].object = &all[i]
	}
	return c.list(nil, rows)
}

func (c *cli) printExplanation(x *explanation) error {
	span := "no session"
	if w := x.Window; w != nil {
		span = w.Start.String() + " to " + w.End.String()
	}
	fmt.Fprintf(c.out, "%s  key %q  %s  (key partition %s)\nstate      %s\nwatermark  %s (data %s)\nevents     %d\n",
		x.PolicyGeneration, x.Key, span, subject.PP(x.KeyPartition), x.State, x.Watermark, x.WatermarkData, x.Events)
	for _, why := range x.Why {
		fmt.Fprintf(c.out, "why        %s\n", why)
	}
	fmt.Fprintln(c.out)
	var rows []row
	for _, s := range x.Partitions {
		holds := ""
		if s.Holds {
			holds = "holds"
		}
		rows = append(rows, row{cells: []string{s.Source, strconv.Itoa(int(s.Partition)), s.Status, s.MaxEventTime.String(), s.Watermark.String(), (time.Duration(s.QuietForMs) * time.Millisecond).String(), holds}})
	}
	if err := c.list([]string{"SOURCE", "PARTITION", "STATUS", "MAX EVENT TIME", "WATERMARK", "QUIET FOR", ""}, rows); err != nil || len(x.Revisions) == 0 {
		return err
	}
	fmt.Fprintln(c.out)
	rows = nil
	for i := range x.Revisions {
		w := &x.Revisions[i]
		rows = append(rows, row{cells: []string{w.Start.String(), w.End.String(), strconv.FormatUint(w.Revision, 10), w.Firing, w.State, w.values() + x.names.succession(w)}})
	}
	return c.list([]string{"START", "END", "REVISION", "FIRING", "STATE", "VALUE"}, rows)
}

// valueOf answers a revision's value as JSON by aggregate name.
func valueOf(r *revision.Revision) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, f := range r.Value {
		text := []byte(f.Text)
		if f.Quoted {
			text, _ = json.Marshal(f.Text) // a string always can be
		}
		out[f.Name] = text
	}
	return out
}

// onlyJob answers the stream's job when it has just one.
func onlyJob(ctx context.Context, js jetstream.JetStream, stream string) (string, error) {
	snapshot, err := config.Load(ctx, js)
	if err != nil {
		return "", err
	}
	job := ""
	for _, e := range snapshot.Policies {
		switch {
		case e.Policy.Stream != stream || e.Policy.Job == job:
		case job != "":
			return "", usage(fmt.Errorf("stream %s has several jobs; name one with --job", stream))
		default:
			job = e.Policy.Job
		}
	}
	if job == "" {
		return "", usage(fmt.Errorf("stream %s has no policy; apply one with `tidemark apply`", stream))
	}
	return job, nil
}

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
	Window           revision.Window          `json:"window"`
	KeyPartition     int                      `json:"keyPartition"`
	State            revision.OutputState     `json:"state"`
	Why              []string                 `json:"why"`
	Watermark        envelope.EventTime       `json:"watermark"`
	WatermarkData    envelope.EventTime       `json:"watermarkData"`
	Partitions       []window.PartitionStatus `json:"sourcePartitions"`
	Events           uint64                   `json:"events"` // members; of a window that is held no more, those of its last revision
	Revisions        []windowRow              `json:"revisions"`
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
		Long: `Say why the window of a key that holds a time is in its state: watermark, who holds it,
members, revisions. Every job and generation of the stream is explained; -o json prints
one object, or an array where there are several.`,
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

// explain asks the windower and the projector about the window of key that holds at, for
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
		pp := keyPartition(snapshot, stream, key)
		x := explanation{Stream: stream, PolicyGeneration: p.PolicyGeneration(), Key: key, KeyPartition: pp, State: revision.Open, Revisions: []windowRow{}}
		var status windowerStatus
		request := map[string]any{"key": key, "at": at}
		if err := c.ask(ctx, conn.NC, subject.WindowerStatus(stream, p.Job, p.Generation, pp), "windower", request, &status); err != nil {
			return nil, err
		}
		x.Watermark, x.WatermarkData, x.Partitions = status.W, status.Wdata, status.Partitions
		x.Window = windowOf(p, at)
		if status.Window != nil {
			x.Events = status.Window.Events
		}
		q := windowQuery{Key: key, Generation: p.PolicyGeneration(), History: true, From: x.Window.Start.String(), To: x.Window.End.String()}
		err := c.eachWindow(ctx, conn.NC, stream, q, func(w *windowRow) (err error) {
			if status.Window == nil {
				if x.Events, err = membersOf(w.Record); err != nil {
					return err
				}
			}
			x.State, w.Record = revision.OutputState(w.State), nil
			x.Revisions = append(x.Revisions, *w)
			return nil
		})
		if err != nil {
			return nil, err
		}
		x.reason(p, status.Window)
		all = append(all, x)
	}
	if len(all) == 0 {
		return nil, noJob(snapshot, stream, job)
	}
	return all, nil
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

// windowOf answers the tumbling window that holds at.
func windowOf(p *policy.StreamTimePolicy, at envelope.EventTime) revision.Window {
	size, offset := int64(p.Window.Size), int64(p.Window.Offset)
	rest := (int64(at) - offset) % size
	if rest < 0 {
		rest += size
	}
	start := at.Add(-rest)
	return revision.Window{Start: start, End: start.Add(size)}
}

func keyPartition(s config.Snapshot, stream, key string) int {
	for _, e := range s.Streams {
		if e.Stream.Name == stream {
			return admission.KeyPartition(key, e.Stream.Partitions)
		}
	}
	return 0
}

// reason says in words why the window is where it is.
func (x *explanation) reason(p *policy.StreamTimePolicy, held *window.OpenWindow) {
	final := x.Window.End.Add(int64(p.AllowedLateness))
	switch {
	case x.Watermark < x.Window.End:
		if held == nil {
			x.say("no event of this window has arrived yet")
		}
		x.say("it has not fired: the watermark stands at %s and must reach the window's end %s", x.Watermark, x.Window.End)
		x.holders()
		return
	case len(x.Revisions) == 0 && held == nil:
		x.say("no event was accepted into it, and an empty window is never published")
	case held != nil && held.Dirty:
		x.say("a correction waits for the next mark")
	case len(x.Revisions) > 0 && x.Revisions[len(x.Revisions)-1].Op == string(revision.Retract):
		x.say("every event of it was withdrawn, so the result is taken back")
	}
	if x.Watermark >= final {
		x.State = revision.Finalized
		x.say("it is final: the watermark %s has reached end + allowed lateness %s; a later event becomes a late record", x.Watermark, final)
		return
	}
	x.say("late events are accepted until the watermark %s reaches %s", x.Watermark, final)
	switch {
	case len(x.Revisions) == 0 || x.WatermarkData >= x.Window.End:
	case x.WatermarkData == envelope.MinEventTime:
		x.say("it fired without waiting for an idle source partition from which no event has come")
	default:
		x.say("it fired without waiting for an idle source partition: the data itself has only reached %s", x.WatermarkData)
	}
}

// holders names the source partitions that keep the watermark where it is.
func (x *explanation) holders() {
	for _, s := range x.Partitions {
		name := fmt.Sprintf("source %s partition %d", s.Source, s.Partition)
		switch {
		case s.Status == "absent":
			x.say("%s has never been marked: no ingest owns it", name)
		case s.Status == "silent":
			x.say("%s is silent: its ingest stopped marking; the watermark waits until it marks again or is retired", name)
		case s.Holds && s.MaxEventTime == envelope.MinEventTime:
			x.say("%s holds it: no event has come from it", name)
		case s.Holds:
			x.say("%s holds it: its highest event time %s, less the out-of-orderness, gives %s", name, s.MaxEventTime, s.Watermark)
		}
	}
}

func (x *explanation) say(format string, args ...any) {
	x.Why = append(x.Why, fmt.Sprintf(format, args...))
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
	fmt.Fprintf(c.out, "%s  key %q  %s to %s  (key partition %s)\nstate      %s\nwatermark  %s (data %s)\nevents     %d\n",
		x.PolicyGeneration, x.Key, x.Window.Start, x.Window.End, subject.PP(x.KeyPartition), x.State, x.Watermark, x.WatermarkData, x.Events)
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
		rows = append(rows, row{cells: []string{strconv.FormatUint(w.Revision, 10), w.Firing, w.State, w.values()}})
	}
	return c.list([]string{"REVISION", "FIRING", "STATE", "VALUE"}, rows)
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

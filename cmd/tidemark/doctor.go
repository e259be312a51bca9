package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Verdicts of a check.
const (
	checkOK   = "ok"
	checkWarn = "warn"
	checkFail = "fail"
)

// checkup is one row of `doctor` (schema doctorCheck.v1).
type checkup struct {
	Check  string `json:"check"`
	Of     string `json:"of,omitempty"` // what was looked at
	Result string `json:"result"`       // ok, warn, fail
	What   string `json:"what"`
	Do     string `json:"do,omitempty"`
}

// doctor looks at an installation and changes nothing.
type doctor struct {
	cli     *cli
	conn    *natsio.Conn
	monitor string
	found   []checkup
	docs    config.Snapshot
}

func (c *cli) doctorCmd() *cobra.Command {
	var monitor string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at an installation and say what is wrong and what to do",
		Long: `Look at an installation without changing it: server and JetStream, sync_interval, clocks,
documents, every stream with its settings and replicas, room, leases and their holders,
and partitions that halted. One row a check; exit status 1 if one fails.

sync_interval is only visible on the server's monitoring port: name it with --monitor.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := &doctor{cli: c, monitor: monitor}
			conn, err := c.connect(cmd.Context())
			if err != nil {
				d.say("server", "", checkFail, err.Error(), "start a server, or name it with --server")
				if err := d.print(); err != nil && !errors.Is(err, errFindings) {
					return err
				}
				return coded{exitCode(err), errFindings}
			}
			defer conn.Close()
			d.conn = conn
			d.examine(cmd.Context())
			return d.print()
		},
	}
	cmd.Flags().StringVar(&monitor, "monitor", "", "monitoring address of nats-server, e.g. http://127.0.0.1:8222")
	return cmd
}

// examine runs every check; each stands for itself.
func (d *doctor) examine(ctx context.Context) {
	each := []func(context.Context){d.server, d.durability, d.documents, d.streams, d.room, d.leases, d.windowers, d.projectors, d.ingest}
	for _, check := range each {
		bounded, cancel := d.cli.deadline(ctx)
		check(bounded)
		cancel()
	}
}

func (d *doctor) say(check, of, result, what, do string) {
	d.found = append(d.found, checkup{Check: check, Of: of, Result: result, What: what, Do: do})
}

// print shows the rows; a failed check makes the verb exit 1.
func (d *doctor) print() error {
	rows := make([]row, len(d.found))
	failed := false
	for i := range d.found {
		f := &d.found[i]
		failed = failed || f.Result == checkFail
		rows[i] = row{cells: []string{f.Result, f.Check, f.Of, f.What, f.Do}, object: f}
	}
	if err := d.cli.list([]string{"RESULT", "CHECK", "OF", "WHAT", "DO"}, rows); err != nil {
		return err
	}
	if failed {
		return findings(errFindings)
	}
	return nil
}

// documents loads the applied documents, which checks every digest.
func (d *doctor) documents(ctx context.Context) {
	docs, err := config.Load(ctx, d.conn.JS)
	if err != nil {
		d.say("documents", "", checkFail, err.Error(), "put back an older value of the config bucket")
		return
	}
	d.docs = docs
	if len(docs.Streams) == 0 {
		d.say("documents", "", checkWarn, "nothing is applied yet", "tidemark apply -f FILE")
		return
	}
	for _, e := range docs.Policies {
		if e.CoreVersion != config.CoreVersion {
			d.say("core version", e.Policy.Stream+"/"+e.Policy.PolicyGeneration(), checkFail,
				fmt.Sprintf("the generation is pinned to core version %d, this binary has %d", e.CoreVersion, config.CoreVersion),
				"run the binary that it was applied with, or start a new generation")
		}
	}
	d.say("documents", "", checkOK, fmt.Sprintf("%d streams, %d policies, %d effect policies and %d adapters, every digest fits", len(docs.Streams), len(docs.Policies), len(docs.EffectPolicies), len(docs.Adapters)), "")
}

// streams compares every stream with what it must be.
func (d *doctor) streams(ctx context.Context) {
	shared, err := natsio.SurveyShared(ctx, d.conn.JS)
	d.streamGroup("shared", shared, err)
	for _, e := range d.docs.Streams {
		states, err := natsio.SurveyStream(ctx, d.conn.JS, e.Stream.Name, e.Stream.Partitions)
		d.streamGroup(e.Stream.Name, states, err)
	}
	surveyed := map[string]bool{}
	for _, e := range d.docs.EffectPolicies {
		if name := e.Effect.Stream; !surveyed[name] {
			surveyed[name] = true
			states, err := natsio.SurveyEffects(ctx, d.conn.JS, name, d.partitionsOf(name))
			d.streamGroup(name+" effects", states, err)
		}
	}
	for _, e := range d.docs.Policies {
		p := e.Policy
		states, err := natsio.SurveyPolicy(ctx, d.conn.JS, p.Stream, p.Job, p.Generation, d.partitionsOf(p.Stream))
		d.streamGroup(p.Stream+"/"+p.PolicyGeneration(), states, err)
	}
}

func (d *doctor) partitionsOf(stream string) int {
	for _, e := range d.docs.Streams {
		if e.Stream.Name == stream {
			return e.Stream.Partitions
		}
	}
	return 0
}

// streamGroup says one row for a group of streams, and one for each that is not well.
func (d *doctor) streamGroup(of string, states []natsio.StreamState, err error) {
	if err != nil {
		d.say("streams", of, checkFail, err.Error(), "see the server's log")
		return
	}
	before := len(d.found)
	var bytes uint64
	replicas := map[int]int{}
	for _, s := range states {
		bytes += s.Bytes
		replicas[s.Replicas]++
		switch {
		case s.Missing:
			d.say("stream", s.Name, checkFail, "it does not exist", "apply the documents again; if it held data, restore it from a backup")
		case s.Wrong != "":
			d.say("stream", s.Name, checkFail, s.Wrong, "change it back with `nats stream edit`")
		case len(s.Behind) > 0:
			d.say("stream", s.Name, checkWarn, fmt.Sprintf("replicas %v are offline or behind leader %s", s.Behind, s.Leader), "look at these servers; one more loss and it stops")
		case s.MaxBytes > 0 && s.Bytes*100 >= uint64(s.MaxBytes)*90:
			d.say("stream", s.Name, checkWarn, fmt.Sprintf("%d of at most %d bytes are used", s.Bytes, s.MaxBytes), "raise max_bytes before it is full: a full journal stops its partition")
		}
	}
	if len(d.found) > before {
		return
	}
	d.say("streams", of, checkOK, fmt.Sprintf("%d streams, %s, %s", len(states), replicaText(replicas), byteText(bytes)), "")
}

func replicaText(counts map[int]int) string {
	for n := range counts {
		if len(counts) == 1 {
			return fmt.Sprintf("R%d", n)
		}
	}
	return fmt.Sprintf("replicas differ: %v", counts)
}

func byteText(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}

// sourcesOf lists the source partitions of a stream's policies.
func (d *doctor) sourcesOf(stream string) map[string]int {
	out := map[string]int{}
	for _, e := range d.docs.Policies {
		if e.Policy.Stream == stream {
			addSources(out, e.Policy.Sources)
		}
	}
	return out
}

func addSources(into map[string]int, refs []policy.SourceRef) {
	for _, s := range refs {
		into[s.Name] = max(into[s.Name], s.Partitions)
	}
}

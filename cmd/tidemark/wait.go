package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/journal"
	"github.com/tidemark-mesh/tidemark/internal/leases"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// How often wait looks, and how long it collects answers of ingest processes.
const (
	waitStep  = 20 * time.Millisecond
	flushTime = 5 * time.Second
	flushMore = 200 * time.Millisecond
	// gatherTime is how long projectors have to answer before they are asked again.
	gatherTime = time.Second
)

func (c *cli) waitCmd() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait STREAM",
		Short: "Return when everything acknowledged before the call is visible to readers",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.timeout = timeout
			ctx, cancel := c.deadline(cmd.Context())
			defer cancel()
			conn, err := c.connect(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			return c.wait(ctx, conn, args[0])
		},
	}
	// Waiting for readers takes longer than asking: the flag of all verbs has another default.
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for readers")
	return cmd
}

// wait asks ingest for a mark behind everything acknowledged, notes how far the events
// journals reach, and polls every living projector until its readers are that far.
func (c *cli) wait(ctx context.Context, conn *natsio.Conn, stream string) error {
	if err := knownStream(ctx, conn.JS, stream); err != nil {
		return err
	}
	if err := flush(ctx, conn.NC, stream); err != nil {
		return err
	}
	targets, err := waitTargets(ctx, conn, stream)
	if err != nil {
		return err
	}
	projectors, err := leases.Count(ctx, conn.JS, "projector", clock.System())
	if err != nil {
		return err
	}
	defer projectors.Close()
	ticker := clock.System().NewTicker(waitStep)
	defer ticker.Stop()
	for {
		behind, err := allBehind(ctx, conn.NC, stream, targets, projectors)
		if err != nil {
			return err
		}
		if behind == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return coded{exitUnreachable, fmt.Errorf("not everything is visible in time: %s; give a longer --timeout, or see `tidemark explain`", behind)}
		case <-ticker.C():
		}
	}
}

// flush lets every ingest process mark what it has acknowledged.
func flush(ctx context.Context, nc *nats.Conn, stream string) error {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe() // the connection closes right after
	if err := nc.PublishRequest(subject.IngestFlush(stream), inbox, nil); err != nil {
		return err
	}
	first, err := sub.NextMsgWithContext(ctx)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil // no ingest runs: what is in the journals is all there is
	case err != nil:
		return coded{exitUnreachable, fmt.Errorf("ingest did not answer: %w", err)}
	}
	for m := first; ; {
		if err := decodeReply(m.Data, nil); err != nil {
			return findings(err)
		}
		if m, err = sub.NextMsg(flushMore); err != nil {
			return nil // no further process answers
		}
	}
}

// target is what one key partition's readers must reach.
type target struct {
	last        uint64 // sequence of the events journal
	generations map[string]bool
}

func waitTargets(ctx context.Context, conn *natsio.Conn, stream string) ([]target, error) {
	snapshot, err := config.Load(ctx, conn.JS)
	if err != nil {
		return nil, err
	}
	var targets []target
	for _, e := range snapshot.Streams {
		if e.Stream.Name != stream {
			continue
		}
		for pp := range e.Stream.Partitions {
			last, err := journal.LastSeq(ctx, conn.JS, subject.EventsStream(stream, pp), "")
			if err != nil {
				return nil, err
			}
			targets = append(targets, target{last: last, generations: map[string]bool{}})
		}
	}
	for _, e := range snapshot.Policies {
		if e.Policy.Stream == stream {
			for _, t := range targets {
				t.generations[e.Policy.PolicyGeneration()] = true
			}
		}
	}
	return targets, nil
}

// readerStatus is what one projector process says of its views.
type readerStatus struct {
	Instance   string `json:"instance"`
	Ready      bool   `json:"ready"`
	Partitions []struct {
		Job        string          `json:"job"`
		Generation int             `json:"generation"`
		Partition  int             `json:"partition"`
		Problem    string          `json:"problem"`
		Retired    bool            `json:"retired"`
		Events     json.RawMessage `json:"events"`
	} `json:"partitions"`
}

// allBehind answers what the readers of any living projector still miss, "" if nothing.
// One that is only starting answers no queries yet, and will not before it is that far.
func allBehind(ctx context.Context, nc *nats.Conn, stream string, targets []target, projectors *leases.Census) (string, error) {
	answers, missing, err := gatherStatus(ctx, nc, stream, projectors)
	if err != nil {
		return "", err
	}
	ready := false
	for _, status := range answers {
		if !status.Ready {
			continue
		}
		ready = true
		if behind, err := status.behind(targets); behind != "" || err != nil {
			return behind, err
		}
	}
	switch {
	case missing != "":
		return fmt.Sprintf("projector %s lives and does not answer", missing), nil
	case !ready:
		return "no projector has read its views yet", nil
	}
	return "", nil
}

// gatherStatus asks every projector process for its status. missing names one that is alive and
// did not answer in time.
func gatherStatus(ctx context.Context, nc *nats.Conn, stream string, projectors *leases.Census) (answers map[string]readerStatus, missing string, err error) {
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, "", err
	}
	defer sub.Unsubscribe() // asked again with a fresh inbox
	if err := nc.PublishRequest(subject.Query(stream, "status"), inbox, nil); err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, gatherTime)
	defer cancel()
	answers = map[string]readerStatus{}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return nil, "", coded{exitUnreachable, errors.New("no projector answers on this server; is `tidemark up` or `tidemark projector` running?")}
		case err != nil: // time is over
			return answers, absent(answers, projectors), nil
		}
		var status readerStatus
		if err := json.Unmarshal(m.Data, &status); err != nil {
			return nil, "", fmt.Errorf("a projector answered something that is no JSON: %w", err)
		}
		answers[status.Instance] = status
		if absent(answers, projectors) == "" {
			return answers, "", nil
		}
	}
}

// absent answers a living projector that is not among the answers, "" for none.
func absent(answers map[string]readerStatus, projectors *leases.Census) string {
	for _, instance := range projectors.Live() {
		if _, ok := answers[instance]; !ok {
			return instance
		}
	}
	return ""
}

// behind answers what the readers of whichever projector answers first still miss, "" if
// nothing.
func (c *cli) behind(ctx context.Context, nc *nats.Conn, stream string, targets []target) (string, error) {
	var status readerStatus
	if err := c.ask(ctx, nc, subject.Query(stream, "status"), "projector", struct{}{}, &status); err != nil {
		return "", err
	}
	return status.behind(targets)
}

// behind answers what the readers of one projector still miss, "" if nothing.
func (status readerStatus) behind(targets []target) (string, error) {
	seen := map[string]int{}
	for _, p := range status.Partitions {
		generation := fmt.Sprintf("%s@%d", p.Job, p.Generation)
		if p.Problem != "" {
			return "", findings(errors.New(p.Problem))
		}
		seen[generation]++
		if p.Retired || p.Partition >= len(targets) {
			continue
		}
		at, err := revision.ParsePosition(p.Events)
		if err != nil {
			return "", err
		}
		if want := targets[p.Partition].last; at.Seq <= want {
			return fmt.Sprintf("%s key partition %s reaches events %d of %d", generation, subject.PP(p.Partition), at.Seq-1, want), nil
		}
	}
	for _, t := range targets {
		for generation := range t.generations {
			if seen[generation] < len(targets) {
				return fmt.Sprintf("the projector does not know every key partition of %s yet", generation), nil
			}
		}
	}
	return "", nil
}

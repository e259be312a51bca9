package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/examples/orders"
	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/internal/providersim"
	"github.com/tidemark-mesh/tidemark/internal/verify/gates"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// The demo's window: one hour of one region, far enough in the past for any clock.
const (
	demoStream = "orders"
	demoSource = "shop"
	demoKey    = "eu-west"
	demoHour   = "2025-06-02T10:00:00Z"
	demoWait   = 20 * time.Second
	demoStep   = 400 * time.Millisecond
)

func (c *cli) demoCmd() *cobra.Command {
	var stay bool
	var data string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "The story of a late refund, a reward and two sessions that become one, with everything in one process",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if data == "" {
				dir, err := os.MkdirTemp("", "tidemark-demo-")
				if err != nil {
					return refused(err)
				}
				defer os.RemoveAll(dir)
				data = dir + "/data"
			}
			return c.demo(cmd.Context(), data, stay)
		},
	}
	cmd.Flags().BoolVar(&stay, "stay", false, "keep everything running afterwards, to look around")
	cmd.Flags().StringVar(&data, "data", "", "data directory (default: a temporary one)")
	return cmd
}

// demo starts all services, tells the story, and ends.
func (c *cli) demo(ctx context.Context, data string, stay bool) error {
	log := zerolog.Nop()
	if c.verbose {
		log = c.logger()
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	told := make(chan error, 1)
	provider, err := startProvider(data + ".provider.ndjson")
	if err != nil {
		return err
	}
	defer provider.Close(ctx) // what it holds is in its log
	u := &uptime{data: data, log: log}
	err = u.run(running, func(e endpoints) error {
		s := &story{cli: c, endpoints: e, provider: provider}
		err := s.tell(running)
		told <- err
		if err == nil && stay {
			c.note("\nstill running; press Ctrl-C to end")
			return nil
		}
		stop()
		return nil
	})
	select {
	case failed := <-told:
		return failed
	default:
		if err == nil {
			err = errors.New("the services ended before the story did")
		}
		return err
	}
}

// story is one telling.
type story struct {
	*cli
	endpoints endpoints
	conn      *natsio.Conn
	provider  *providersim.Sim
	step      int
}

func (s *story) say(format string, args ...any) { fmt.Fprintf(s.out, "   "+format+"\n", args...) }

func (s *story) scene(format string, args ...any) {
	s.step++
	fmt.Fprintf(s.out, "\n%d. %s\n", s.step, fmt.Sprintf(format, args...))
}

// tell is the story in order; each step checks what it claims.
func (s *story) tell(ctx context.Context) error {
	conn, err := natsio.Connect(ctx, natsio.Options{Server: s.endpoints.NATS, Name: "tidemark-demo"})
	if err != nil {
		return err
	}
	defer conn.Close()
	s.conn = conn
	fmt.Fprintf(s.out, "tidemark demo: a shop, its hourly revenue, and a refund that comes late; rewards that are issued once; sessions, and an event that bridges two\n\n   nats  %s\n   http  %s\n", s.endpoints.NATS, s.endpoints.HTTP)
	for _, scene := range []func(context.Context) error{
		s.documents, s.rewards, s.orders, s.quietPartition, s.hourCloses, s.rewardIssued, s.quarantine, s.refund,
		s.correction, s.lostAnswer, s.sessions, s.bridge, s.proof,
	} {
		if err := scene(ctx); err != nil {
			return fmt.Errorf("step %d of the demo: %w", s.step, err)
		}
	}
	s.links()
	return nil
}

func (s *story) documents(ctx context.Context) error {
	s.scene("Two documents: the stream `orders`, and the policy `hourly-revenue@1`")
	docs, found := policy.Parse("examples/orders/orders.yaml", orders.Documents)
	if len(found) > 0 {
		return fmt.Errorf("%s:%d: %s: %s", found[0].File, found[0].Line, found[0].Rule, found[0].Message)
	}
	results, err := config.Apply(ctx, s.conn.JS, docs, config.Options{Replicas: 1, Reason: "demo"})
	if err != nil {
		return err
	}
	for _, r := range results {
		s.say("%s %s %s (digest %.12s…)", r.Kind, r.Name, r.Action, r.Digest)
	}
	s.say("windows of 1 h; 5 min out-of-orderness; late events change the result for 24 h")
	return nil
}

func (s *story) orders(ctx context.Context) error {
	s.scene("Orders of the hour from 10:00 arrive on two source partitions")
	first := []string{
		order("o-1", "10:05:00", "5200.00"), order("o-2", "10:31:12.5", "4100.50"), order("o-3", "10:58:59.999999", "2145.00"),
	}
	second := []string{order("o-4", "10:12:00", "800.00"), order("o-5", "10:20:00", "700.00")}
	if err := s.push(ctx, 0, first...); err != nil {
		return err
	}
	if err := s.push(ctx, 1, second...); err != nil {
		return err
	}
	s.say("3 orders on partition 0, 2 on partition 1: each acknowledged after it was on disk")
	return nil
}

func (s *story) quietPartition(ctx context.Context) error {
	s.scene("Partition 0 goes on past 11:05; partition 1 goes quiet at 10:20 and holds the watermark")
	if err := s.push(ctx, 0, order("o-6", "11:07:00", "99.00")); err != nil {
		return err
	}
	if err := s.wait(ctx, s.conn, demoStream); err != nil {
		return err
	}
	return s.why(ctx)
}

// why prints the words of `explain` for the demo's window.
func (s *story) why(ctx context.Context) error {
	all, err := s.explain(ctx, s.conn, demoStream, "hourly-revenue", demoKey, at("10:00:00"))
	if err != nil {
		return err
	}
	for _, x := range all {
		s.say("state %s, watermark %s", x.State, x.Watermark)
		for _, why := range x.Why {
			s.say("· %s", why)
		}
	}
	return nil
}

func (s *story) hourCloses(ctx context.Context) error {
	s.scene("Partition 0 keeps selling; after 4 s without an arrival partition 1 is idle, and the hour closes without it")
	sold := 0
	w, err := s.until(ctx, func(w *windowRow) bool { return w.Revision == 1 }, func() error {
		sold++
		return s.push(ctx, 0, order(fmt.Sprintf("o-6-%d", sold), fmt.Sprintf("11:07:%02d", sold), "1.00"))
	})
	if err != nil {
		return err
	}
	s.show(w)
	if w.values() != "orders=5 revenue=12945.50" {
		return fmt.Errorf("revision 1 shows %s instead of orders=5 revenue=12945.50", w.values())
	}
	s.say("provenance %s: the result says that it did not wait for everyone", w.Provenance)
	return nil
}

func (s *story) quarantine(ctx context.Context) error {
	s.scene("An order without a time is no order at arrival time: it is quarantined, with its bytes")
	if err := s.push(ctx, 0, `{"id":"o-7","order":{"region":"eu-west","amount":"10.00"}}`); err != nil {
		return err
	}
	count := 0
	err := s.quarantined(ctx, s.conn, demoStream, quarantineFilter{}, func(q *quarantined) error {
		count++
		s.say("%s: %s (%s)", q.ID, q.Reason, q.Rule)
		return nil
	})
	if err == nil && count != 1 {
		err = fmt.Errorf("%d events stand in quarantine instead of 1", count)
	}
	return err
}

func (s *story) refund(ctx context.Context) error {
	s.scene("A refund of 15.00 for 10:40 arrives on partition 1, after the hour was closed")
	if err := s.push(ctx, 1, order("o-8", "10:40:00", "-15.00")); err != nil {
		return err
	}
	w, err := s.until(ctx, func(w *windowRow) bool { return w.Revision == 2 }, func() error { return nil })
	if err != nil {
		return err
	}
	s.show(w)
	if w.values() != "orders=6 revenue=12930.50" {
		return fmt.Errorf("revision 2 shows %s instead of orders=6 revenue=12930.50", w.values())
	}
	s.say("the ledger keeps both:")
	return s.eachWindow(ctx, s.conn.NC, demoStream, windowQuery{Key: demoKey, From: demoHour, To: clockTime("11:00:00"), History: true}, func(w *windowRow) error {
		r, err := parseRecord(w)
		if err != nil {
			return err
		}
		before := "no predecessor"
		if r.Predecessor != nil {
			before = fmt.Sprintf("predecessor %d, digest %.12s…", r.Predecessor.Revision, r.Predecessor.Digest)
		}
		s.say("  revision %d  %-8s %s  (%s)", w.Revision, w.Firing, w.values(), before)
		return nil
	})
}

func (s *story) proof(ctx context.Context) error {
	s.scene("`tidemark verify` recomputes everything from the events journals")
	if err := s.wait(ctx, s.conn, demoStream); err != nil {
		return err
	}
	reports := make([]gates.Report, 2)
	for i, stream := range []string{demoStream, activityStream} {
		var err error
		if reports[i], err = gates.Run(ctx, s.conn.JS, stream, gates.Options{}); err != nil {
			return err
		}
	}
	for i, g := range reports[0].Gates {
		result := "ok"
		if other := reports[1].Gates[i]; !g.OK || !other.OK {
			result = "FAILED " + strings.Join(append(g.Details, other.Details...), "; ")
		}
		s.say("%-66s %s", g.Name, result)
	}
	if !reports[0].OK || !reports[1].OK {
		return findings(errors.New("a gate of verify failed"))
	}
	return nil
}

func (s *story) links() {
	fmt.Fprintf(s.out, "\nLook around (with --stay, in another terminal):\n\n")
	for _, line := range []string{
		"go run ./cmd/tidemark windows orders --server " + s.endpoints.NATS,
		"go run ./cmd/tidemark explain orders --key eu-west --at " + demoHour + " --server " + s.endpoints.NATS,
		"go run ./cmd/tidemark effects ls orders --server " + s.endpoints.NATS,
		"nats sub --server " + s.endpoints.NATS + " '" + subject.RevisionsOfKey(demoStream, "hourly-revenue", 1, demoKey) + "'",
		"go run ./cmd/tidemark explain activity --key account-29 --at 2025-06-02T10:18:00Z --server " + s.endpoints.NATS,
		"curl " + s.endpoints.HTTP + "/v1/streams/orders/windows?key=eu-west",
		"curl " + s.endpoints.HTTP + "/metrics",
	} {
		s.say("%s", line)
	}
}

// push sends orders to one source partition and fails unless all are acknowledged.
func (s *story) push(ctx context.Context, partition uint32, lines ...string) error {
	return s.pushTo(ctx, demoStream, demoSource, partition, lines...)
}

// pushTo sends lines to a source partition of a stream and fails unless all are
// acknowledged.
func (s *story) pushTo(ctx context.Context, stream, source string, partition uint32, lines ...string) error {
	o := sendOptions{stream: stream, source: source, partition: partition, format: "jsonl"}
	cut, err := newCutter(bytes.NewReader([]byte(strings.Join(lines, "\n"))), o.format, chunkLines)
	if err != nil {
		return err
	}
	p := newPusher(s.cli, s.conn.NC, o, "", cut.contentType)
	return p.all(ctx, cut, func() {})
}

// until polls the demo's window until ok, as a reader would; between two looks the shop
// goes on.
func (s *story) until(ctx context.Context, ok func(*windowRow) bool, goOn func() error) (*windowRow, error) {
	ctx, cancel := context.WithTimeout(ctx, demoWait)
	defer cancel()
	ticker := clock.System().NewTicker(demoStep)
	defer ticker.Stop()
	q := windowQuery{Key: demoKey, From: demoHour, To: clockTime("11:00:00")}
	for {
		var found *windowRow
		err := s.eachWindow(ctx, s.conn.NC, demoStream, q, func(w *windowRow) error {
			if ok(w) {
				found = w
			}
			return nil
		})
		if err != nil || found != nil {
			return found, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.New("the expected revision did not appear in time")
		case <-ticker.C():
		}
		if err := goOn(); err != nil {
			return nil, err
		}
	}
}

func (s *story) show(w *windowRow) {
	s.say("%s %s to %s: revision %d, %s, %s", w.Key, w.Start, w.End, w.Revision, w.State, w.values())
}

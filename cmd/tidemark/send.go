package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// sendOptions are the flags of send.
type sendOptions struct {
	stream, source string
	partition      uint32
	format         string
	idPath         string
	finish         bool
	rate           int
}

func (c *cli) sendCmd() *cobra.Command {
	var o sendOptions
	cmd := &cobra.Command{
		Use:   "send FILE|-",
		Short: "Push the events of a file into a business stream",
		Long: `Push the events of a file (or of stdin, written -) into one source partition.

Every acknowledged event is durable. A send that was interrupted goes on where it was
when the same file is sent again; what is sent twice all the same is a duplicate and
changes nothing. Files ending in .gz are unpacked.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.send(cmd.Context(), args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.stream, "stream", "", "business stream")
	f.StringVar(&o.source, "source", "", "source, as the policy names it")
	f.Uint32Var(&o.partition, "partition", 0, "source partition")
	f.StringVar(&o.format, "format", "jsonl", "jsonl, csv or cloudevents (one CloudEvent a line, or one JSON array)")
	f.StringVar(&o.idPath, "id-path", "", "JSON Pointer to the id of a jsonl or csv event (default /id)")
	f.BoolVar(&o.finish, "finish", false, "afterwards: no event follows in this source partition")
	f.IntVar(&o.rate, "rate", 0, "events a second at most (0 = as fast as it goes)")
	for _, name := range []string{"stream", "source"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flag was declared three lines above
		}
	}
	return cmd
}

// chunkLines answers how many events go into one request: fewer when the rate is low, so
// that they flow instead of coming in bursts.
func (o *sendOptions) chunkLines() int {
	if o.rate == 0 {
		return chunkLines
	}
	return min(chunkLines, max(1, o.rate/10))
}

// send reads the file in chunks and pushes them in order, several under way at once.
func (c *cli) send(ctx context.Context, path string, o sendOptions) error {
	if o.rate < 0 {
		return usage(fmt.Errorf("--rate %d: give events a second, 0 for no limit", o.rate))
	}
	if o.idPath != "" {
		if _, err := envelope.ParsePointer(o.idPath); err != nil {
			return usage(fmt.Errorf("--id-path: %w", err))
		}
	}
	in, err := c.openInput(path)
	if err != nil {
		return err
	}
	defer in.Close()
	cut, err := newCutter(in, o.format, o.chunkLines())
	if err != nil {
		return err
	}
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	p := newPusher(c, conn.NC, o, in.token, cut.contentType)
	if err := p.begin(ctx, conn.JS); err != nil {
		return err
	}
	bar := c.progress("send", in.size)
	err = p.all(ctx, cut, func() { bar.set(in.read(), p.sent()) })
	bar.end()
	if err != nil {
		return p.stopped(err)
	}
	if err := p.finish(ctx); err != nil {
		return err
	}
	return c.sendResult(p)
}

// stopped says why a send ended early, what is safe and how to go on.
func (p *pusher) stopped(err error) error {
	if errors.Is(err, context.Canceled) {
		err = coded{exitFindings, errors.New("interrupted")}
	}
	switch {
	case exitCode(err) == exitConflict:
		return err // the same file again would be refused again
	case exitCode(err) == exitRefused, exitCode(err) == exitUsage:
		return fmt.Errorf("%w; %d events before it are acknowledged and safe", err, p.sent())
	case p.token == "":
		return fmt.Errorf("%w; %d events are acknowledged and safe: send the same input again, what was taken in already counts once", err, p.sent())
	}
	return fmt.Errorf("%w; %d events are acknowledged and safe: send the same file again to go on", err, p.sent())
}

// sendResult says what became of the events.
func (c *cli) sendResult(p *pusher) error {
	if p.skipped > 0 {
		c.note("went on after line %d, which was acknowledged before", p.skipped)
	}
	result := map[string]any{
		"stream": p.options.stream, "source": p.options.source, "partition": p.options.partition,
		"accepted": p.accepted, "quarantined": p.quarantined, "resumedAfterLine": p.skipped, "finished": p.options.finish,
	}
	if c.output != "table" {
		return c.object(result)
	}
	fmt.Fprintf(c.out, "accepted %d, quarantined %d\n", p.accepted, p.quarantined)
	if p.quarantined > 0 {
		c.note("look at what was quarantined with: tidemark quarantine ls %s", p.options.stream)
	}
	return nil
}

// input is a file being sent, with what names it and how far it is read.
type input struct {
	io.Reader
	closers []io.Closer
	token   string // names this file for resuming; "" = cannot be resumed
	size    int64  // bytes on disk; 0 = not known
	raw     *counter
}

func (i *input) read() int64 { return i.raw.n.Load() }

func (i *input) Close() {
	for _, closer := range i.closers {
		closer.Close() // opened for reading: nothing is lost
	}
}

func (c *cli) openInput(path string) (*input, error) {
	if path == "-" {
		raw := &counter{Reader: c.in}
		return &input{Reader: raw, raw: raw}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, usage(fmt.Errorf("there is no file %s", path))
		}
		return nil, refused(err)
	}
	return newInput(path, f)
}

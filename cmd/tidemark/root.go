package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
)

// cli holds what every verb shares: streams and the flags that stand everywhere.
type cli struct {
	in       io.Reader
	out, err io.Writer

	output  string
	server  string
	context string
	creds   string
	timeout time.Duration
	noColor bool
	verbose bool
}

// run executes one command line and answers its exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	c := &cli{in: in, out: out, err: errOut}
	root := c.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(errOut, "tidemark: "+spoken(root, args, err))
	}
	return exitCode(err)
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tidemark",
		Short: "Event-time windows whose results can be revised",
		Long: `Tidemark turns a stream of events into window results that can be revised.

Start with:  tidemark demo`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return c.checkOutput()
		},
	}
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	f := root.PersistentFlags()
	f.StringVarP(&c.output, "output", "o", "table", "table, json, ndjson or yaml")
	f.StringVar(&c.server, "server", "", "NATS URL (default: $NATS_URL, then the nats context, then nats://127.0.0.1:4222)")
	f.StringVar(&c.context, "context", "", "nats context")
	f.StringVar(&c.creds, "creds", "", "credentials file")
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "how long to wait for an answer")
	f.BoolVar(&c.noColor, "no-color", os.Getenv("NO_COLOR") != "", "no colours")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "more detail on stderr")
	root.AddCommand(
		c.demoCmd(), c.upCmd(),
		c.serviceCmd("ingest", "Take events in and write them to the events journal"),
		c.serviceCmd("windower", "Compute windows and write proposals to the windows journal"),
		c.serviceCmd("projector", "Accept proposals as revisions and answer queries"),
		c.serviceCmd("effector", "Carry out effects at most once"),
		c.serviceCmd("reconciler", "Give every late event a disposition"),
		c.applyCmd(), c.getCmd(), c.diffCmd(), c.lintCmd(), c.schemaCmd(),
		c.backupCmd(), c.traceCmd(), c.testCmd(), c.createCmd(), c.stateCmd(), c.doctorCmd(),
		c.sendCmd(), c.waitCmd(), c.windowsCmd(), c.revisionsCmd(), c.explainCmd(),
		c.quarantineCmd(), c.effectsCmd(), c.gateCmd(), c.sourceCmd(), c.verifyCmd(), c.benchCmd(), c.webhookCmd(), c.providerSimCmd(), c.healthCmd(), c.versionCmd(),
	)
	return root
}

// connect connects to the server that the flags name.
func (c *cli) connect(ctx context.Context) (*natsio.Conn, error) {
	return natsio.Connect(ctx, natsio.Options{
		Server: c.server, Context: c.context, Creds: c.creds,
		Name: "tidemark-cli", Timeout: min(c.timeout, 5*time.Second),
	})
}

// deadline bounds a verb that asks and answers.
func (c *cli) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}

// logger writes services' logs to stderr: readable lines on a terminal, JSON elsewhere.
func (c *cli) logger() zerolog.Logger {
	level := zerolog.InfoLevel
	if c.verbose {
		level = zerolog.DebugLevel
	}
	var w io.Writer = c.err
	if f, ok := c.err.(*os.File); ok && isTerminal(f) {
		w = zerolog.ConsoleWriter{Out: f, NoColor: c.noColor, TimeFormat: time.TimeOnly}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}

// note writes one line of progress to stderr.
func (c *cli) note(format string, args ...any) { fmt.Fprintf(c.err, format+"\n", args...) }

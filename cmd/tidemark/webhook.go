package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/consumers/webhook"
	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/heartbeat"
	"github.com/tidemark-mesh/tidemark/internal/httpx"
)

// webhookData is the data directory where --data is left out.
const webhookData = "./tidemark-webhook"

// webhookFile lies in the data directory while the process runs and tells its address.
const webhookFile = "webhook.json"

func (c *cli) webhookCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Deliver revisions to an HTTP endpoint, and look after the deliveries",
		Long: `Deliver the revisions of a job to an HTTP endpoint, signed by the Standard Webhooks rules.
"webhook run" is the process; the other verbs ask the process that runs with the same --data,
or at --url. docs/webhooks.md tells what receivers get and what they must do.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.webhookRunCmd(), c.webhookStatusCmd(), c.webhookListCmd(), c.webhookRedeliverCmd(), c.webhookSkipCmd(), c.webhookEnableCmd())
	return cmd
}

// webhookRun is one run of the process.
type webhookRun struct {
	document, data, address, tokenFile string
	anonymous                          bool
}

func (c *cli) webhookRunCmd() *cobra.Command {
	w := &webhookRun{}
	cmd := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Run the process that delivers to one endpoint",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.webhookRun(cmd.Context(), w) },
	}
	f := cmd.Flags()
	f.StringVar(&w.document, "config", "", "document of the endpoint (YAML)")
	f.StringVar(&w.data, "data", webhookData, "data directory: deliveries and the position in the feed; losing it sends every revision again")
	f.StringVar(&w.address, "http", "127.0.0.1:0", "address of receipts, API, health and metrics")
	f.StringVar(&w.tokenFile, "http-token-file", "", "file with the bearer token that /v1/ asks for")
	f.BoolVar(&w.anonymous, "http-anonymous", false, "listen beyond loopback without a token (closed networks only)")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err) // the flag was declared right above
	}
	return cmd
}

func (c *cli) webhookRun(ctx context.Context, w *webhookRun) error {
	endpoint, err := webhook.Load(w.document)
	if err != nil {
		return usage(err)
	}
	token, err := readSecret(w.tokenFile)
	if err != nil {
		return err
	}
	dir, err := openDataDir(w.data)
	if err != nil {
		return err
	}
	lock, err := dir.lock("webhook")
	if err != nil {
		return err
	}
	defer lock.Release()
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := dir.bind(ctx, conn.JS); err != nil {
		return err
	}
	log := c.logger().With().Str("service", "webhook").Logger()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	monitor := heartbeat.New(clock.System())
	sender, err := webhook.New(webhook.Config{
		Endpoint: endpoint, Conn: conn.NC, Dir: dir.path, Log: log, Registry: registry, Clock: clock.System(), Monitor: monitor,
		Audit: func(ctx context.Context, verb, reason string, details any) error {
			return config.Audit(ctx, conn.JS, endpoint.Stream, verb, reason, details)
		},
	})
	if err != nil {
		return refused(err)
	}
	server, err := httpx.Listen(httpx.Options{Addr: w.address, Token: token, Anonymous: w.anonymous, Registry: registry, Problems: sender.Problems, Alive: monitor.Late})
	if err != nil {
		return refused(errors.Join(err, sender.Close()))
	}
	n := &node{names: []string{"webhook"}, services: []service{sender}, http: server, log: log}
	sender.Routes(server.Mux)
	file := filepath.Join(dir.path, webhookFile)
	if err := writeWebhookFile(file, server.URL()); err != nil {
		return refused(errors.Join(err, sender.Close()))
	}
	defer os.Remove(file) // what is written there is no longer true
	log.Info().Str("endpoint", endpoint.Name).Str("http", server.URL()).Msg("started")
	return serve(ctx, n, func() error {
		log.Info().Str("endpoint", endpoint.Name).Msg("ready")
		return nil
	})
}

// webhookAddress is what webhookFile holds.
type webhookAddress struct {
	HTTP string `json:"http"`
}

func writeWebhookFile(path, url string) error {
	text, err := json.Marshal(webhookAddress{url})
	if err != nil {
		return err
	}
	return writeFile(path, append(text, '\n'))
}

// readWebhookFile answers the address of the process that runs with a data directory.
func readWebhookFile(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, webhookFile))
	if err != nil {
		return "", coded{exitUnreachable, fmt.Errorf("no webhook process runs with the data directory %s; start `tidemark webhook run`, or name another with --data or --url", dir)}
	}
	var a webhookAddress
	if err := json.Unmarshal(text, &a); err != nil || a.HTTP == "" {
		return "", findings(fmt.Errorf("%s is not readable; name the process with --url", filepath.Join(dir, webhookFile)))
	}
	return a.HTTP, nil
}

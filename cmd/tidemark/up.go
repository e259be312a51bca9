package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/httpx"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
)

// endpoints is what a running `up` tells others, on stdout and in <data>/endpoints.json.
type endpoints struct {
	NATS string `json:"nats"`
	HTTP string `json:"http"`
}

// endpointsFile lies in the data directory while `up` is ready.
const endpointsFile = "endpoints.json"

func (c *cli) upCmd() *cobra.Command {
	var data string
	var natsPort, httpPort int
	var checkpointEvery, snapshotEvery time.Duration
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run all services with an embedded NATS server in one process",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u := &uptime{data: data, natsPort: natsPort, httpPort: httpPort, checkpointEvery: checkpointEvery, snapshotEvery: snapshotEvery, log: c.logger()}
			return u.run(cmd.Context(), func(e endpoints) error {
				fmt.Fprintf(c.out, "nats  %s\nhttp  %s\n", e.NATS, e.HTTP)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&data, "data", "./tidemark-data", "data directory")
	cmd.Flags().IntVar(&natsPort, "nats-port", 4222, "port of the embedded NATS server (0 = any free one)")
	cmd.Flags().IntVar(&httpPort, "http-port", 8080, "port of the HTTP API (0 = any free one)")
	checkpointFlag(cmd, &checkpointEvery)
	snapshotFlag(cmd, &snapshotEvery)
	return cmd
}

// uptime is one run of all services over an embedded server.
type uptime struct {
	data               string
	natsPort, httpPort int
	checkpointEvery    time.Duration
	snapshotEvery      time.Duration
	log                zerolog.Logger
}

// run starts everything, calls ready once every service is, and serves until ctx ends.
func (u *uptime) run(ctx context.Context, ready func(endpoints) error) error {
	dir, err := openDataDir(u.data)
	if err != nil {
		return err
	}
	server, err := natsio.Embed(ctx, natsio.EmbeddedOptions{Dir: filepath.Join(dir.path, "nats"), Port: u.natsPort, Name: "tidemark-" + dir.marker.Instance[:8]})
	if err != nil {
		return refused(err)
	}
	defer server.Shutdown()
	file := filepath.Join(dir.path, endpointsFile)
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return refused(err)
	}
	conn, err := server.Connect(ctx, "tidemark-up")
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := natsio.Provision(ctx, conn.JS, 1); err != nil {
		return err
	}
	if err := dir.bind(ctx, conn.JS); err != nil {
		return err
	}
	n, err := newNode(nodeConfig{
		conn: conn, dir: dir, log: u.log,
		http:     httpx.Options{Addr: "127.0.0.1:" + strconv.Itoa(u.httpPort)},
		services: []string{"ingest", "windower", "projector", "effector"}, checkpointEvery: u.checkpointEvery,
		scale: scaleFlags{snapshotEvery: u.snapshotEvery},
	})
	if err != nil {
		return err
	}
	e := endpoints{NATS: server.URL(), HTTP: n.http.URL()}
	n.log = n.log.With().Str("nats", e.NATS).Logger()
	defer os.Remove(file) // what is written there is no longer true
	return serve(ctx, n, func() error {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if err := writeFile(file, append(text, '\n')); err != nil {
			return err
		}
		defer n.log.Info().Str("http", e.HTTP).Msg("ready")
		return ready(e)
	})
}

// serve runs n and calls ready once no service has a problem.
func serve(ctx context.Context, n *node, ready func() error) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		if n.waitReady(running) != nil {
			return
		}
		if err := ready(); err != nil {
			stop(err)
		}
	}()
	err := n.run(running)
	if cause := context.Cause(running); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

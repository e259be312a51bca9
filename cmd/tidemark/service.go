package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/httpx"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
)

// serviceCmd runs one service against a NATS server.
func (c *cli) serviceCmd(name, short string) *cobra.Command {
	var data, address, tokenFile string
	var anonymous bool
	var replicas int
	var checkpointEvery, askFirst time.Duration
	var scale scaleFlags
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			dir, err := openDataDir(data)
			if err != nil {
				return err
			}
			lock, err := dir.lock(name)
			if err != nil {
				return err
			}
			defer lock.Release()
			token, err := readSecret(tokenFile)
			if err != nil {
				return err
			}
			conn, err := c.connect(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			if err := natsio.Provision(ctx, conn.JS, replicas); err != nil {
				return err
			}
			if err := dir.bind(ctx, conn.JS); err != nil {
				return err
			}
			log := c.logger()
			n, err := newNode(nodeConfig{
				conn: conn, dir: dir, log: log, services: []string{name}, checkpointEvery: checkpointEvery, askFirst: askFirst, scale: scale,
				http: httpx.Options{Addr: address, Token: token, Anonymous: anonymous},
			})
			if err != nil {
				return err
			}
			return serve(ctx, n, func() error {
				log.Info().Str("service", name).Str("http", n.http.URL()).Msg("ready")
				return nil
			})
		},
	}
	holds := "checkpoints; losing it costs time, never facts"
	if name == "effector" {
		holds = "dispatch files: what this machine may have sent; keep it, and never copy it"
	}
	f := cmd.Flags()
	f.StringVar(&data, "data", "./tidemark-"+name, "data directory ("+holds+")")
	f.StringVar(&address, "http", "127.0.0.1:0", "address of the HTTP API, health and metrics")
	f.StringVar(&tokenFile, "http-token-file", "", "file with the bearer token that /v1/ asks for")
	f.BoolVar(&anonymous, "http-anonymous", false, "listen beyond loopback without a token (closed networks only)")
	f.IntVar(&replicas, "replicas", 1, "replicas of the buckets that all services share, when they are made (1 or 3)")
	scale.add(cmd)
	checkpointFlag(cmd, &checkpointEvery)
	if name == "effector" {
		askFlag(cmd, &askFirst)
	}
	return cmd
}

// readSecret reads a secret from a file; no path means no secret.
func readSecret(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", refused(err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", refused(fmt.Errorf("%s is empty; write the token into it", path))
	}
	return secret, nil
}

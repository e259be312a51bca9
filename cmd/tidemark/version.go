package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/config"
)

// version is set at build time with -ldflags "-X main.version=…".
var version = "dev"

func (c *cli) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the binary, the core and the embedded server",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return c.object(map[string]any{
				"version": version, "core": config.CoreVersion, "go": runtime.Version(),
				"natsServer": moduleVersion("github.com/nats-io/nats-server/v2"),
				"natsClient": moduleVersion("github.com/nats-io/nats.go"),
			})
		},
	}
}

func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "unknown"
}

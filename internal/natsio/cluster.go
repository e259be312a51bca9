package natsio

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sync/errgroup"
)

// Member says how to start one server of a cluster again after Shutdown.
type Member struct {
	Options EmbeddedOptions
	cluster server.ClusterOpts
	routes  []string
}

// Start starts the member and waits until it has joined.
func (m Member) Start(ctx context.Context) (*Embedded, error) {
	return embed(ctx, m.Options, m.cluster, m.routes)
}

// EmbedCluster starts n servers under dir that form one JetStream cluster, for tests of
// replicated journals. Member i restarts server i on its ports and directory.
func EmbedCluster(ctx context.Context, dir string, n int) ([]*Embedded, []Member, error) {
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, nil, err
	}
	routes := make([]string, n)
	for i := range routes {
		routes[i] = fmt.Sprintf("nats-route://127.0.0.1:%d", ports[n+i])
	}
	members := make([]Member, n)
	for i := range members {
		name := fmt.Sprintf("n%d", i+1)
		members[i] = Member{
			Options: EmbeddedOptions{Dir: filepath.Join(dir, name), Port: ports[i], Name: name},
			cluster: server.ClusterOpts{Name: "tidemark", Host: "127.0.0.1", Port: ports[n+i]},
			routes:  routes,
		}
	}
	servers := make([]*Embedded, n)
	group, ctx := errgroup.WithContext(ctx)
	for i := range members {
		group.Go(func() (err error) {
			servers[i], err = members[i].Start(ctx)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		for _, e := range servers {
			if e != nil {
				e.Shutdown()
			}
		}
		return nil, nil, err
	}
	return servers, members, nil
}

// freePorts finds ports that are free now: routes must be known before the first start.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		probe, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer probe.Close()
		ports = append(ports, probe.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func joinRoutes(routes []string) string { return strings.Join(routes, ",") }

// Package netguard keeps requests to configured URLs out of the networks around the
// process. It looks at the address that is dialled, after the name was resolved, so a
// name that answers a public address when it is looked at and a private one when it is
// dialled gains nothing.
package netguard

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// RefusedError tells which address was not dialled. Nothing was sent, and a second try
// meets the same answer.
type RefusedError struct {
	Addr  netip.Addr
	Range string // what the address is, with its range
	Hint  string
}

// Error says which address, why, and what to do.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("refused to dial %s: %s; %s", e.Addr, e.Range, e.Hint)
}

// Guard decides which addresses may be dialled. The zero Guard allows public unicast
// addresses and nothing else. It is safe for concurrent use.
type Guard struct {
	allow []netip.Prefix
}

// New answers a guard that also lets through what lies in allow. An entry counts for the
// address as it is dialled (10.0.0.0/8 does not open 64:ff9b::10.0.0.1), the address of a
// metadata service needs an entry of its own (/32 or /128), and unspecified, multicast
// and broadcast addresses are never let through.
func New(allow ...netip.Prefix) *Guard {
	g := &Guard{}
	for _, p := range allow {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		g.allow = append(g.allow, p.Masked())
	}
	return g
}

// ParseAllow reads a list of CIDR ranges or single addresses.
func ParseAllow(texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			addr, single := netip.ParseAddr(text)
			if single != nil || addr.Zone() != "" {
				return nil, fmt.Errorf("allow %q is no address range; write one such as 10.20.0.0/16 or fd12:3456::/32", text)
			}
			p = netip.PrefixFrom(addr, addr.BitLen())
		}
		out = append(out, p)
	}
	return out, nil
}

// Check answers a *RefusedError if addr may not be dialled.
func (g *Guard) Check(addr netip.Addr) error {
	addr = addr.WithZone("").Unmap()
	what, kind := classify(addr)
	switch {
	case kind == public:
		return nil
	case kind == never:
		return &RefusedError{Addr: addr, Range: what, Hint: "name a host that has an address of its own"}
	case kind == metadata:
		if !g.names(addr) {
			return &RefusedError{Addr: addr, Range: what, Hint: fmt.Sprintf("if this is meant, list %s by itself under allow; a wider range does not open it", addr)}
		}
	case !g.covers(addr):
		return &RefusedError{Addr: addr, Range: what, Hint: "name a public host, or list the range of the receiver under allow"}
	}
	return nil
}

func (g *Guard) covers(addr netip.Addr) bool {
	for _, p := range g.allow {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

func (g *Guard) names(addr netip.Addr) bool {
	for _, p := range g.allow {
		if p.IsSingleIP() && p.Addr() == addr {
			return true
		}
	}
	return false
}

// Control is for net.Dialer.ControlContext: it runs once for every address that is about
// to be dialled, before the first packet.
func (g *Guard) Control(_ context.Context, network, address string, _ syscall.RawConn) error {
	switch network {
	case "tcp", "tcp4", "tcp6":
	default:
		return fmt.Errorf("refused to dial %s over %s: only TCP is dialled here", address, network)
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("refused to dial %q: it is no resolved address", address)
	}
	return g.Check(at.Addr())
}

// Dialer answers a dialer that asks the guard.
func (g *Guard) Dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, KeepAlive: 30 * time.Second, ControlContext: g.Control}
}

// Transport answers a transport that dials through the guard. It asks no proxy, whatever
// the environment says, because a proxy would dial unguarded, and it speaks HTTP/1.1,
// whose transport sends a request again in fewer cases.
func (g *Guard) Transport(dialTimeout time.Duration) *http.Transport {
	return &http.Transport{
		DialContext:            g.Dialer(dialTimeout).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}
}

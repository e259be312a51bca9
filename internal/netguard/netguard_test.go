package netguard

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestWhatIsRefusedAndWhatIsNot(t *testing.T) {
	cases := []struct{ addr, want string }{
		// public
		{"93.184.216.34", ""},
		{"8.8.8.8", ""},
		{"172.15.255.255", ""},
		{"172.32.0.0", ""},
		{"100.63.255.255", ""},
		{"100.128.0.0", ""},
		{"198.17.255.255", ""},
		{"198.20.0.0", ""},
		{"2606:2800:220:1:248:1893:25c8:1946", ""},
		{"2a00:1450:4001:82a::200e", ""},
		{"::ffff:93.184.216.34", ""},
		{"64:ff9b::5db8:d822", ""},
		{"2002:5db8:d822::1", ""},
		{"2001:0:5db8:d822:0:0:a247:27dd", ""},
		// IPv4
		{"0.0.0.0", "unspecified"},
		{"0.1.2.3", "this network"},
		{"10.0.0.1", "private"},
		{"10.255.255.255", "private"},
		{"172.16.0.1", "private"},
		{"172.31.255.255", "private"},
		{"192.168.1.1", "private"},
		{"100.64.0.1", "carrier-grade"},
		{"100.127.255.255", "carrier-grade"},
		{"127.0.0.1", "loopback"},
		{"127.255.255.254", "loopback"},
		{"169.254.1.1", "link-local"},
		{"192.0.0.8", "protocol assignments"},
		{"192.0.2.1", "documentation"},
		{"198.51.100.7", "documentation"},
		{"203.0.113.9", "documentation"},
		{"192.88.99.1", "6to4 relay"},
		{"198.18.0.1", "benchmarking"},
		{"198.19.255.255", "benchmarking"},
		{"224.0.0.1", "multicast"},
		{"239.255.255.250", "multicast"},
		{"240.0.0.1", "reserved"},
		{"255.255.255.255", "broadcast"},
		// metadata services
		{"169.254.169.254", "metadata"},
		{"169.254.170.2", "metadata"},
		{"169.254.170.23", "metadata"},
		{"100.100.100.200", "metadata"},
		{"192.0.0.192", "metadata"},
		{"168.63.129.16", "metadata"},
		{"fd00:ec2::254", "metadata"},
		{"fd00:ec2::23", "metadata"},
		{"fd20:ce::254", "metadata"},
		{"fd00:42::42", "metadata"},
		// IPv6
		{"::", "unspecified"},
		{"::1", "loopback"},
		{"fe80::1", "link-local"},
		{"fe80::1%eth0", "link-local"},
		{"febf::1", "link-local"},
		{"fec0::1", "site-local"},
		{"fc00::1", "unique-local"},
		{"fd12:3456:789a::1", "unique-local"},
		{"ff02::1", "multicast"},
		{"ff0e::1", "multicast"},
		{"2001:db8::1", "documentation"},
		{"3fff::1", "documentation"},
		{"2001:2::1", "benchmarking"},
		{"2001:20::1", "protocol assignments"},
		{"100::1", "discard-only"},
		{"5f00::1", "segment routing"},
		{"4000::1", "no global unicast"},
		{"64:ff9b:1::a00:1", "NAT64 address of local use"},
		// forms that lead to a refused IPv4 address
		{"::ffff:127.0.0.1", "loopback"},
		{"::ffff:10.1.2.3", "private"},
		{"::ffff:169.254.169.254", "metadata"},
		{"::127.0.0.1", "IPv4-compatible form of 127.0.0.1, loopback"},
		{"::169.254.169.254", "IPv4-compatible form of 169.254.169.254"},
		{"::8.8.8.8", "no global unicast"},
		{"::ffff:0:10.0.0.1", "IPv4-translated form of 10.0.0.1, private"},
		{"64:ff9b::127.0.0.1", "NAT64 form of 127.0.0.1, loopback"},
		{"64:ff9b::a9fe:a9fe", "NAT64 form of 169.254.169.254, address of a cloud's metadata"},
		{"64:ff9b::0.0.0.0", "NAT64 form of 0.0.0.0, unspecified"},
		{"2002:7f00:1::", "6to4 form of 127.0.0.1, loopback"},
		{"2002:a00:1::1", "6to4 form of 10.0.0.1, private"},
		{"2002:a9fe:a9fe::1", "6to4 form of 169.254.169.254"},
		{"2001:0:5db8:d822:0:0:f5ff:fffe", "Teredo form of 10.0.0.1, private"},
		{"2001:0:a00:1:0:0:a247:27dd", "Teredo form of 10.0.0.1, private"},
		{"2a00:1450:4001:82a:0:5efe:a00:1", "ISATAP form of 10.0.0.1, private"},
		{"2a00:1450:4001:82a:200:5efe:7f00:1", "ISATAP form of 127.0.0.1, loopback"},
		{"fe80::5efe:a00:1", "link-local"},
	}
	for _, c := range cases {
		addr := netip.MustParseAddr(c.addr)
		for _, port := range []string{"80", "443"} {
			err := New().Control(t.Context(), "tcp", net.JoinHostPort(c.addr, port), nil)
			if c.want == "" {
				if err != nil {
					t.Errorf("%s: %v", c.addr, err)
				}
				continue
			}
			var refused *RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("%s was let through, want %q", c.addr, c.want)
			}
			text := err.Error()
			if !strings.Contains(text, c.want) || !strings.Contains(text, addr.WithZone("").Unmap().String()) || refused.Hint == "" || !strings.HasSuffix(text, refused.Hint) {
				t.Errorf("%s: %q names not %q, the address and what to do", c.addr, text, c.want)
			}
		}
	}
}

func TestTheAllowListOpensWhatItNames(t *testing.T) {
	cases := []struct {
		allow, addr string
		open        bool
	}{
		{"10.20.0.0/16", "10.20.3.4", true},
		{"10.20.0.0/16", "10.21.3.4", false},
		{"10.20.3.4", "10.20.3.4", true},
		{"10.20.0.0/16", "::ffff:10.20.3.4", true},
		{"::ffff:10.20.0.0/112", "10.20.3.4", true},
		{"10.0.0.0/8", "64:ff9b::a00:1", false},
		{"64:ff9b::/96", "64:ff9b::a00:1", true},
		{"64:ff9b::/96", "64:ff9b::a9fe:a9fe", false},
		{"64:ff9b::a9fe:a9fe", "64:ff9b::a9fe:a9fe", true},
		{"127.0.0.0/8", "127.0.0.1", true},
		{"127.0.0.0/8", "::1", false},
		{"::1", "::1", true},
		{"fd00::/8", "fd12::1", true},
		{"fd00::/8", "fd00:ec2::254", false},
		{"0.0.0.0/0", "169.254.169.254", false},
		{"169.254.0.0/16", "169.254.169.254", false},
		{"169.254.0.0/16", "169.254.7.7", true},
		{"169.254.169.254", "169.254.169.254", true},
		{"fe80::/10", "fe80::1%eth0", true},
		{"0.0.0.0/0", "0.0.0.0", false},
		{"0.0.0.0/0", "224.0.0.1", false},
		{"0.0.0.0/0", "255.255.255.255", false},
		{"::/0", "ff02::1", false},
		{"::/0", "::", false},
		{"::/0", "fd12::1", true},
	}
	for _, c := range cases {
		allow, err := ParseAllow([]string{c.allow})
		if err != nil {
			t.Fatal(err)
		}
		if err := New(allow...).Check(netip.MustParseAddr(c.addr)); (err == nil) != c.open {
			t.Errorf("allow %s, %s: %v", c.allow, c.addr, err)
		}
	}
	for _, text := range []string{"", "private", "10.0.0.0/33", "fe80::1%eth0", "10.0.0", "0x7f000001"} {
		if _, err := ParseAllow([]string{text}); err == nil || !strings.Contains(err.Error(), "10.20.0.0/16") {
			t.Errorf("allow %q: %v", text, err)
		}
	}
}

func TestOnlyResolvedTCPAddressesAreDialled(t *testing.T) {
	for _, c := range []struct{ network, address string }{
		{"unix", "/run/secret.sock"},
		{"udp", "93.184.216.34:53"},
		{"tcp", "example.com:80"},
		{"tcp", "93.184.216.34"},
		{"tcp", ""},
	} {
		if err := New().Control(t.Context(), c.network, c.address, nil); err == nil {
			t.Errorf("%s %q was let through", c.network, c.address)
		}
	}
	if err := New().Check(netip.Addr{}); err == nil {
		t.Error("no address was let through")
	}
}

// names is a name server on loopback. Its n-th answer of an address is answers[n], the
// last one from then on.
type names struct {
	conn    net.PacketConn
	answers []netip.Addr
	asked   atomic.Int64
}

func serveNames(t *testing.T, answers ...string) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{conn: conn}
	for _, a := range answers {
		n.answers = append(n.answers, netip.MustParseAddr(a))
	}
	t.Cleanup(func() { conn.Close() })
	go n.serve()
	return n
}

func (n *names) serve() {
	buf := make([]byte, 1500)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer := n.answer(buf[:size]); answer != nil {
			_, _ = n.conn.WriteTo(answer, from)
		}
	}
}

// answer takes the question over and adds one address record to questions of type A.
func (n *names) answer(question []byte) []byte {
	end := 12
	for end < len(question) && question[end] != 0 {
		end += int(question[end]) + 1
	}
	end += 5
	if end > len(question) {
		return nil
	}
	out := append([]byte(nil), question[:end]...)
	out[2], out[3] = 0x81, 0x80 // response, recursion available
	binary.BigEndian.PutUint16(out[6:], 0)
	binary.BigEndian.PutUint16(out[8:], 0)
	binary.BigEndian.PutUint16(out[10:], 0)
	if kind := binary.BigEndian.Uint16(question[end-4:]); kind != 1 {
		return out
	}
	at := min(int(n.asked.Add(1))-1, len(n.answers)-1)
	binary.BigEndian.PutUint16(out[6:], 1)
	out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4) // the name asked for, A, IN, TTL 0, 4 bytes
	v4 := n.answers[at].As4()
	return append(out, v4[:]...)
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

// The name answers a public address when somebody looks, and loopback when it is dialled.
func TestANameThatRebindsIsRefusedWhenItIsDialled(t *testing.T) {
	reached := make(chan struct{}, 1)
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached <- struct{}{} }))
	defer inside.Close()
	_, port, _ := net.SplitHostPort(inside.Listener.Addr().String())
	server := serveNames(t, "93.184.216.34", "127.0.0.1")

	looked, err := server.resolver().LookupNetIP(t.Context(), "ip4", "receiver.example.")
	if err != nil || len(looked) != 1 || New().Check(looked[0]) != nil {
		t.Fatalf("the first look: %v %v", looked, err)
	}
	dialer := New().Dialer(5 * time.Second)
	dialer.Resolver = server.resolver()
	client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
	_, err = client.Get("http://receiver.example.:" + port + "/")
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Addr != netip.MustParseAddr("127.0.0.1") {
		t.Fatalf("error %v", err)
	}
	if server.asked.Load() < 2 || len(reached) != 0 {
		t.Fatalf("%d questions, %d requests", server.asked.Load(), len(reached))
	}
}

// Resolvers of some systems read 2130706433, 0177.0.0.1 or 0x7f.1 as 127.0.0.1. Whatever
// they answer, the guard sees an address.
func TestOddHostsThatMeanLoopbackAreRefused(t *testing.T) {
	reached := make(chan string, 32)
	inside := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.Host }))
	defer inside.Close()
	_, port, _ := net.SplitHostPort(inside.Listener.Addr().String())
	hosts := []string{
		"127.0.0.1", "127.1", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "017700000001", "127.0.0.1.", "localhost", "LOCALHOST",
		"[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:1]", "[::127.0.0.1]", "0", "0.0.0.0", "[::]", "１２７.0.0.1",
	}
	for _, resolver := range []*net.Resolver{nil, serveNames(t, "127.0.0.1").resolver()} {
		dialer := New().Dialer(5 * time.Second)
		dialer.Resolver = resolver
		transport := New().Transport(5 * time.Second)
		transport.DialContext = dialer.DialContext
		for _, host := range hosts {
			if _, err := (&http.Client{Transport: transport}).Get("http://" + host + ":" + port + "/"); err == nil {
				t.Errorf("%s was reached", host)
			}
		}
	}
	if len(reached) != 0 {
		t.Fatalf("reached as %s", <-reached)
	}
}

func TestTheTransportReachesAnAllowedHostAndNoProxy(t *testing.T) {
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer inside.Close()
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	transport := New(netip.MustParsePrefix("127.0.0.1/32")).Transport(5 * time.Second)
	defer transport.CloseIdleConnections()
	if transport.Proxy != nil {
		t.Error("the transport asks for a proxy")
	}
	answer, err := (&http.Client{Transport: transport}).Get(inside.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		t.Errorf("status %d", answer.StatusCode)
	}
}

// Whatever the bytes, an address that leads inside through a known form is refused.
func FuzzEmbeddedAddressesAreNeverMorePublicThanWhatTheyEmbed(f *testing.F) {
	f.Add([]byte{0x20, 0x02, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) != 16 {
			return
		}
		addr := netip.AddrFrom16([16]byte(data))
		_, inner := embedded(addr)
		for _, v4 := range inner {
			if !v4.Is4() {
				t.Fatalf("%s embeds %s", addr, v4)
			}
			if New().Check(v4) != nil && New().Check(addr) == nil {
				t.Fatalf("%s is let through, %s is not", addr, v4)
			}
		}
		if err := New().Check(addr); err == nil && (addr.IsPrivate() || addr.IsLoopback() || addr.IsMulticast() || addr.IsLinkLocalUnicast() || addr.IsUnspecified()) {
			t.Fatalf("%s is let through", addr)
		}
	})
}

package netguard

import (
	"encoding/binary"
	"net/netip"
)

type kind int

const (
	public   kind = iota
	closed        // refused unless the allow list covers it
	metadata      // refused unless the allow list names it alone
	never         // nothing that a request can be meant for
)

type block struct {
	prefix netip.Prefix
	what   string
	kind   kind
}

func blocks(k kind, what string, prefixes ...string) []block {
	var out []block
	for _, text := range prefixes {
		p := netip.MustParsePrefix(text)
		name := what
		if !p.IsSingleIP() {
			name += " (" + text + ")"
		}
		out = append(out, block{p, name, k})
	}
	return out
}

// The first block that contains an address names it, so single addresses stand first.
// Ranges as in the IANA special-purpose address registries.
var special = func() (all []block) {
	for _, part := range [][]block{
		blocks(metadata, "address of a cloud's metadata service",
			"169.254.169.254/32", "169.254.169.253/32", "169.254.169.123/32", "169.254.170.2/32", "169.254.170.23/32",
			"169.254.42.42/32", "169.254.0.23/32", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32",
			"fd00:ec2::254/128", "fd00:ec2::253/128", "fd00:ec2::123/128", "fd00:ec2::23/128",
			"fd20:ce::254/128", "fd00:42::42/128", "fd00:c1::a9fe:a9fe/128"),
		blocks(never, "unspecified address", "0.0.0.0/32", "::/128"),
		blocks(never, "broadcast address", "255.255.255.255/32"),
		blocks(closed, "this network", "0.0.0.0/8"),
		blocks(closed, "loopback address", "127.0.0.0/8", "::1/128"),
		blocks(closed, "private address", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
		blocks(closed, "carrier-grade NAT address", "100.64.0.0/10"),
		blocks(closed, "link-local address", "169.254.0.0/16", "fe80::/10"),
		blocks(closed, "address of protocol assignments", "192.0.0.0/24"),
		blocks(closed, "documentation address", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
		blocks(closed, "6to4 relay address", "192.88.99.0/24"),
		blocks(closed, "benchmarking address", "198.18.0.0/15", "2001:2::/48"),
		blocks(never, "multicast address", "224.0.0.0/4", "ff00::/8"),
		blocks(closed, "reserved address", "240.0.0.0/4"),
		blocks(closed, "unique-local address", "fc00::/7"),
		blocks(closed, "site-local address", "fec0::/10"),
		blocks(closed, "NAT64 address of local use", "64:ff9b:1::/48"),
		blocks(closed, "discard-only address", "100::/64", "100:0:0:1::/64"),
		blocks(closed, "segment routing address", "5f00::/16"),
	} {
		all = append(all, part...)
	}
	return all
}()

var (
	compatible = netip.MustParsePrefix("::/96")
	translated = netip.MustParsePrefix("::ffff:0:0:0/96")
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
	protocols  = netip.MustParsePrefix("2001::/23")
	global6    = netip.MustParsePrefix("2000::/3")
)

// classify answers what an unmapped address without zone is.
func classify(addr netip.Addr) (what string, k kind) {
	if !addr.IsValid() {
		return "no address", never
	}
	for _, b := range special {
		if b.prefix.Contains(addr) {
			return b.what, b.kind
		}
	}
	if addr.Is4() {
		return "", public
	}
	how, inner := embedded(addr)
	for _, v4 := range inner {
		if what, k := classify(v4); k != public {
			// An outer address that only carries a refused one can be allowed by its own range.
			return how + " of " + v4.String() + ", " + what, max(k, closed)
		}
	}
	switch {
	case how == "NAT64 form", how == "6to4 form", how == "Teredo form":
		return "", public
	case protocols.Contains(addr):
		return "address of protocol assignments (2001::/23)", closed
	case !global6.Contains(addr):
		return "no global unicast address (2000::/3)", closed
	}
	return "", public
}

// embedded answers the IPv4 addresses that an IPv6 address leads to.
func embedded(addr netip.Addr) (how string, inner []netip.Addr) {
	b := addr.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case compatible.Contains(addr):
		return "IPv4-compatible form", []netip.Addr{at(12)}
	case translated.Contains(addr):
		return "IPv4-translated form", []netip.Addr{at(12)}
	case nat64.Contains(addr):
		return "NAT64 form", []netip.Addr{at(12)}
	case sixToFour.Contains(addr):
		return "6to4 form", []netip.Addr{at(2)}
	case teredo.Contains(addr):
		client := netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})
		return "Teredo form", []netip.Addr{at(4), client}
	}
	if id := binary.BigEndian.Uint32(b[8:]); id == 0x00005efe || id == 0x02005efe {
		return "ISATAP form", []netip.Addr{at(12)}
	}
	return "", nil
}

package identity_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemark-mesh/tidemark/internal/core/identity"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// The hour from 2026-11-30T10:00Z.
const (
	start envelope.EventTime = 1796032800000000
	end   envelope.EventTime = 1796036400000000

	window     = "a732f8c0b2bd104de82ebb514d6773a07245181cdef848b96b1a68a6e8112289"
	effect     = "0cfe61ce6e9ea7be29b0c22a2fd646c020f12201de82bba34cb5017af9f7a613"
	projection = "82cbdfcae320b75130ffb99949fc13c7927ec6e4a1d619f88e18d562b4c24bda"
	session    = "618c00bd4e7bb8b1e4b1cc2a7c428b74f43d4d8f2a7df66942190549918a0da0"
)

func TestVectorsOfTheDesign(t *testing.T) {
	for name, c := range map[string]struct{ got, want string }{
		"logicalWindowId": {identity.LogicalWindow("orders", "eu-west", start, end), window},
		"projectionId":    {identity.Projection(window, "hourly-revenue@14"), projection},
		"effectKey":       {identity.Effect("issue-reward", window, "eu-west"), effect},
		"session":         {identity.SessionResult("account-29", "gap-11-v2", []string{"activity-83", "activity-47", "activity-61"}), session},
		"session again":   {identity.SessionResult("account-29", "gap-11-v2", []string{"activity-61", "activity-83", "activity-47", "activity-61"}), session},
		"H":               {identity.H("logicalWindow.v1", "orders", "eu-west", "1796032800000000", "1796036400000000"), window},
	} {
		if c.got != c.want {
			t.Errorf("%s is %s, want %s", name, c.got, c.want)
		}
	}
}

// One committed vector for the idDigest: three orders of one shop.
func TestIDDigestVector(t *testing.T) {
	var sum [16]byte
	for _, id := range []string{"o-1", "o-2", "o-3"} {
		sum = identity.Sum128(sum, identity.EventHash("shop", id))
	}
	if got, want := fmt.Sprintf("%x", sum), "61af89c92863804d7b59fb67153eca2b"; got != want {
		t.Errorf("idDigest is %s, want %s", got, want)
	}
}

func TestSessionResultLeavesMembersAlone(t *testing.T) {
	members := []string{"b", "a", "b"}
	identity.SessionResult("k", "r", members)
	if !slices.Equal(members, []string{"b", "a", "b"}) {
		t.Errorf("members are %v afterwards", members)
	}
}

func TestSessionResultCountsCodePoints(t *testing.T) {
	want := fmt.Sprintf("%x", sha256.Sum256([]byte("k|r|2:éà")))
	if got := identity.SessionResult("k", "r", []string{"éà"}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The fast paths say what the plain form of the design says, also for fields that outgrow the stack.
func TestFastPathsEqualTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.IntRange(0, 2000), func(n int) string { return strings.Repeat("x", n) }))
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		s, e := rapid.Int64().Draw(t, "start"), rapid.Int64().Draw(t, "end")

		plain := fmt.Sprintf("logicalWindow.v1|%d:%s|%d:%s|%d:%d|%d:%d", len(a), a, len(b), b,
			len(fmt.Sprint(s)), s, len(fmt.Sprint(e)), e)
		if got, want := identity.LogicalWindow(a, b, envelope.EventTime(s), envelope.EventTime(e)), hexOf(plain); got != want {
			t.Fatalf("LogicalWindow is %s, want %s", got, want)
		}
		if got, want := identity.Projection(a, b), identity.H("projection.v1", a, b); got != want {
			t.Fatalf("Projection is %s, want %s", got, want)
		}
		hash := identity.EventHash(a, b)
		if got, want := fmt.Sprintf("%x", hash), hexOf(fmt.Sprintf("%d:%s|%d:%s", len(a), a, len(b), b))[:32]; got != want {
			t.Fatalf("EventHash is %s, want %s", got, want)
		}
	})
}

func TestSum128(t *testing.T) {
	top := [16]byte{0: 0xff}
	for i := range top {
		top[i] = 0xff
	}
	one := [16]byte{15: 1}
	if got := identity.Sum128(top, one); got != [16]byte{} {
		t.Errorf("2^128-1 plus 1 is %x, want 0", got)
	}
	if got := identity.Sub128([16]byte{}, one); got != top {
		t.Errorf("0 minus 1 is %x, want 2^128-1", got)
	}
	if got := identity.Sum128([16]byte{8: 0xff, 9: 0xff, 10: 0xff, 11: 0xff, 12: 0xff, 13: 0xff, 14: 0xff, 15: 0xff}, one); got != [16]byte{7: 1} {
		t.Errorf("the carry is lost: %x", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SliceOfN(rapid.Byte(), 16, 16)
		a, b := [16]byte(n.Draw(t, "a")), [16]byte(n.Draw(t, "b"))
		if identity.Sub128(identity.Sum128(a, b), b) != a || identity.Sum128(a, b) != identity.Sum128(b, a) {
			t.Fatalf("sum and difference disagree for %x and %x", a, b)
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	buf := make([]byte, 0, identity.HexSize)
	for name, f := range map[string]func(){
		"EventHash":           func() { identity.EventHash("shop", "order-4711-line-2") },
		"AppendLogicalWindow": func() { buf = identity.AppendLogicalWindow(buf[:0], "orders", "eu-west", start, end) },
		"AppendProjection":    func() { buf = identity.AppendProjection(buf[:0], window, "hourly-revenue@14") },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func hexOf(in string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(in))) }

func BenchmarkEventHash(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		identity.EventHash("shop", "order-4711-line-2")
	}
}

func BenchmarkLogicalWindow(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		identity.LogicalWindow("orders", "eu-west", start, end)
	}
}

func BenchmarkProjection(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		identity.Projection(window, "hourly-revenue@14")
	}
}

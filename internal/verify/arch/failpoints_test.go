package arch

import (
	"go/ast"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/failpoint"
)

// Every point of the code is in the registry, every point of the registry is in the code,
// once. What the sweep in tests/ runs is the registry.
func TestFailpointsAreRegistered(t *testing.T) {
	registered := map[string]bool{}
	for _, p := range append(failpoint.Points(), failpoint.EffectPoints()...) {
		if registered[p.Name] {
			t.Errorf("the registry has %s twice", p.Name)
		}
		if p.After == "" || strings.Count(p.Name, "/") != 1 {
			t.Errorf("point %q: a point is named service/step and says after what it stands", p.Name)
		}
		registered[p.Name] = true
	}
	at := map[string]string{}
	for _, f := range load(t) {
		if f.test || under(f.dir, "internal/failpoint") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			name, ok := hit(t, f, n)
			if !ok {
				return true
			}
			switch {
			case under(f.dir, "pkg", "internal/core"):
				t.Errorf("%s: the contract and the core have no failpoints", f.at(n))
			case at[name] != "":
				t.Errorf("%s: point %s stands at %s already", f.at(n), name, at[name])
			case !registered[name]:
				t.Errorf("%s: point %s is not in the registry (internal/failpoint/points.go)", f.at(n), name)
			}
			at[name] = f.at(n)
			return true
		})
	}
	page, err := os.ReadFile("../../../docs/failpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range registered {
		if !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("docs/failpoints.md has no row of %s: run task failpoints", name)
		}
		if at[name] == "" {
			t.Errorf("point %s of the registry is nowhere in the code", name)
		}
	}
}

// hit answers the name of the point if n is a call of failpoint.Hit.
func hit(t *testing.T, f *file, n ast.Node) (name string, ok bool) {
	t.Helper()
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Hit" {
		return "", false
	}
	if pkg, ok := sel.X.(*ast.Ident); !ok || pkg.Name != "failpoint" {
		return "", false
	}
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		t.Errorf("%s: the name of a point is a literal", f.at(n))
		return "", false
	}
	name, err := strconv.Unquote(lit.Value)
	if err != nil {
		t.Fatal(err)
	}
	return name, true
}

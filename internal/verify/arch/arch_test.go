// Package arch holds the test that enforces the layering: pkg ← internal/core ←
// internal/* ← services ← cmd, and where the outside world may be touched.
package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/tidemark-mesh/tidemark/"

// file is one Go file of the module, with its directory relative to the root.
type file struct {
	path, dir string
	test      bool
	ast       *ast.File
	fset      *token.FileSet
}

func (f *file) at(n ast.Node) string {
	return f.path + ":" + strconv.Itoa(f.fset.Position(n.Pos()).Line)
}

// load parses every Go file of the main module.
func load(t *testing.T) []*file {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	var files []*file
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata" || hasModule(path)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, &file{path: filepath.ToSlash(rel), dir: filepath.ToSlash(filepath.Dir(rel)), test: strings.HasSuffix(path, "_test.go"), ast: parsed, fset: fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("only %d Go files found under %s: the walk looks at the wrong place", len(files), root)
	}
	return files
}

func hasModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// under answers whether dir is one of the trees, or below one.
func under(dir string, trees ...string) bool {
	for _, tree := range trees {
		if dir == tree || strings.HasPrefix(dir, tree+"/") {
			return true
		}
	}
	return false
}

func imports(f *file) map[string]ast.Node {
	out := map[string]ast.Node{}
	for _, spec := range f.ast.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err == nil {
			out[path] = spec
		}
	}
	return out
}

func TestImportsFollowTheDirectionOfTheLayers(t *testing.T) {
	for _, f := range load(t) {
		if f.test {
			continue
		}
		for path, node := range imports(f) {
			own, ours := strings.CutPrefix(path, module)
			if why := forbidden(f.dir, own, path, ours); why != "" {
				t.Errorf("%s imports %s: %s", f.at(node), path, why)
			}
		}
	}
}

// forbidden answers why a package in dir may not import path ("" = it may). own is the
// path inside the module where ours is true.
func forbidden(dir, own, path string, ours bool) string {
	stdlib := !ours && !strings.Contains(strings.SplitN(path, "/", 2)[0], ".")
	switch {
	case under(dir, "pkg") && ours && !under(own, "pkg"):
		return "pkg/ is what outsiders import; it knows nothing else of the module"
	case under(dir, "pkg/subscribe") && !ours && !stdlib && !under(path, "github.com/nats-io/nats.go"):
		return "pkg/subscribe may use nats.go and nothing more"
	case under(dir, "pkg/policy") && !ours && !stdlib && !under(path, "github.com/goccy/go-yaml"):
		return "pkg/policy may use the YAML parser and nothing more"
	case under(dir, "pkg") && !under(dir, "pkg/subscribe", "pkg/policy") && !ours && !stdlib:
		return "pkg/ depends on the standard library only"
	case under(dir, "internal/core") && ours && (!under(own, "pkg", "internal/core") || under(own, "pkg/subscribe")):
		return "the core sees pkg/ and itself"
	case under(dir, "internal/core") && !ours && !stdlib:
		return "the core depends on the standard library only"
	case under(dir, "internal/core") && impure(path):
		return "the core has no I/O, clock, goroutine, logger or context"
	case under(dir, "internal/verify/oracle") && ours && !under(own, "pkg"):
		return "the oracle shares no code with the engine"
	case under(dir, "internal") && ours && under(own, "services", "cmd", "consumers", "tests"):
		return "internal/ is below the services"
	case under(dir, "consumers") && ours && !under(own, "pkg", "internal/netguard", "internal/clock", "internal/heartbeat", "internal/checkpoint", "internal/httpx", dir):
		return "a consumer is an outsider: it follows the feed through pkg/ and knows of the inside only the doors to net, clock, file and HTTP, and the heartbeat"
	case under(dir, "services", "pkg") && ours && under(own, "consumers"):
		return "services know nothing of consumers"
	case under(dir, "services") && ours && under(own, "cmd", "tests"):
		return "services are below cmd"
	case under(dir, "services") && ours && under(own, "services") && own != dir && !under(own, dir):
		return "services meet on subjects, never in code"
	}
	return outsideWorld(dir, path)
}

func impure(path string) bool {
	return slices.Contains([]string{
		"context", "log", "log/slog", "os", "os/exec", "net", "net/http", "sync", "sync/atomic", "syscall",
		"math/rand", "math/rand/v2", "crypto/rand", "io/fs", "io/ioutil", "path/filepath", "runtime",
	}, path)
}

// outsideWorld answers where a door to the outside may stand.
func outsideWorld(dir, path string) string {
	switch {
	case under(path, "github.com/nats-io/nats-server") && !under(dir, "internal/natsio"):
		return "the embedded server lives in internal/natsio"
	case under(path, "github.com/nats-io/nats.go") && !under(dir, "internal/natsio", "internal/adapters", "internal/effectops", "internal/backup", "internal/journal", "internal/config", "internal/leases", "internal/verify", "pkg/subscribe", "services", "consumers", "cmd"):
		return "nats.go stays at the edge"
	case under(path, "go.etcd.io/bbolt") && !under(dir, "internal/checkpoint"):
		return "bbolt lives in internal/checkpoint"
	}
	return ""
}

func TestClocksAreReadInOnePlace(t *testing.T) {
	banned := []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}
	for _, f := range load(t) {
		if f.test || under(f.dir, "internal/clock", "examples", "pkg/subscribe") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "time" && pkg.Obj == nil && slices.Contains(banned, call.Sel.Name) {
				t.Errorf("%s uses time.%s: clocks are read through internal/clock only", f.at(n), call.Sel.Name)
			}
			return true
		})
	}
}

func TestTheCoreStartsNoGoroutineAndUsesNoFloat(t *testing.T) {
	for _, f := range load(t) {
		if f.test || !under(f.dir, "internal/core") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt:
				t.Errorf("%s: the core starts no goroutine and has no channel", f.at(n))
			case *ast.Ident:
				if n.Name == "float64" || n.Name == "float32" {
					t.Errorf("%s: sums are exact; the core uses no %s", f.at(n), n.Name)
				}
			}
			return true
		})
	}
}

func TestSubjectsAndStreamNamesAreBuiltInOnePlace(t *testing.T) {
	literal := regexp.MustCompile(`^"(tm\.|TM_|tm_|Nats-|Tm-)`)
	for _, f := range load(t) {
		if f.test || under(f.dir, "pkg/subject") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && literal.MatchString(lit.Value) {
				t.Errorf("%s: %s is a name that pkg/subject builds", f.at(n), lit.Value)
			}
			return true
		})
	}
}

func TestPackageNamesSayWhatIsInside(t *testing.T) {
	banned := []string{"common", "util", "utils", "helper", "helpers", "manager", "model", "models", "types", "base"}
	for _, f := range load(t) {
		if slices.Contains(banned, f.ast.Name.Name) {
			t.Errorf("%s: package %s: name the noun it is about", f.path, f.ast.Name.Name)
		}
	}
}

func TestWhatOutsidersSeeIsDocumented(t *testing.T) {
	for _, f := range load(t) {
		if f.test || !under(f.dir, "pkg", "internal/core") {
			continue
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.IsExported() && fn.Doc == nil && exportedReceiver(fn) {
				t.Errorf("%s: %s has no doc comment", f.at(fn), fn.Name.Name)
			}
		}
	}
}

func exportedReceiver(fn *ast.FuncDecl) bool {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return true
	}
	t := fn.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	name, ok := t.(*ast.Ident)
	return ok && name.IsExported()
}

// Budgets: a file is about one noun, a function can be seen whole.
func TestFilesAndFunctionsStaySmall(t *testing.T) {
	const fileLines, functionLines = 600, 80
	for _, f := range load(t) {
		if f.test {
			continue
		}
		if n := f.fset.File(f.ast.Pos()).LineCount(); n > fileLines {
			t.Errorf("%s has %d lines, more than %d", f.path, n, fileLines)
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				first, last := f.fset.Position(fn.Pos()).Line, f.fset.Position(fn.End()).Line
				if last-first+1 > functionLines {
					t.Errorf("%s: %s has %d lines, more than %d", f.at(fn), fn.Name.Name, last-first+1, functionLines)
				}
			}
		}
	}
}

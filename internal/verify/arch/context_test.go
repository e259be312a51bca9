package arch

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What cmd imports must be in the build context of the images, or they cannot be built:
// .dockerignore leaves everything out but the directories that it names.
func TestBuildContextHoldsEveryImportedPackage(t *testing.T) {
	text, err := os.ReadFile("../../../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(text))
	if !slices.Contains(lines, "*") {
		t.Fatal(".dockerignore does not begin with nothing: this test reads it wrongly")
	}
	inContext := func(dir string) bool {
		return slices.ContainsFunc(lines, func(line string) bool {
			kept, ok := strings.CutPrefix(line, "!")
			return ok && (dir == kept || strings.HasPrefix(dir, kept+"/"))
		})
	}
	imports := map[string][]string{} // of each directory, test files apart
	for _, f := range load(t) {
		if f.test {
			continue
		}
		for _, spec := range f.ast.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if dir, ok := strings.CutPrefix(path, module); ok {
				imports[f.dir] = append(imports[f.dir], dir)
			}
		}
	}
	seen, todo := map[string]bool{}, []string{"cmd/tidemark"}
	for len(todo) > 0 {
		dir := todo[0]
		todo = todo[1:]
		if seen[dir] {
			continue
		}
		seen[dir] = true
		if !inContext(dir) {
			t.Errorf("%s is imported by the binary and left out of the build context: add it to .dockerignore", dir)
		}
		todo = append(todo, imports[dir]...)
	}
	if len(seen) < 20 {
		t.Fatalf("only %d packages found under cmd/tidemark", len(seen))
	}
}

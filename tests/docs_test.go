package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// root is the repository as tests see it.
const root = ".."

// files answers the files of the repository that end in suffix, as paths below root.
func files(t *testing.T, below, suffix string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(filepath.Join(root, below), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(path, suffix) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatalf("no %s file below %q", suffix, below)
	}
	return found
}

func text(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// prose answers a Markdown text without its code blocks.
func prose(markdown string) string {
	var out []string
	code := false
	for line := range strings.Lines(markdown) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	notInAnchor  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors answers the fragments by which the headings of a Markdown text are linked to.
func anchors(markdown string) []string {
	var out []string
	for _, h := range heading.FindAllStringSubmatch(prose(markdown), -1) {
		plain := notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(h[1])), "")
		out = append(out, strings.ReplaceAll(plain, " ", "-"))
	}
	return out
}

func TestDocsLinksResolve(t *testing.T) {
	for _, page := range files(t, "", ".md") {
		for _, link := range markdownLink.FindAllStringSubmatch(prose(text(t, page)), -1) {
			if strings.Contains(link[1], "://") || strings.HasPrefix(link[1], "mailto:") {
				continue
			}
			path, fragment, _ := strings.Cut(link[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", page, link[1])
			} else if fragment != "" && strings.HasSuffix(target, ".md") && !slices.Contains(anchors(text(t, target)), fragment) {
				t.Errorf("%s: the link to %s names no heading of %s", page, link[1], target)
			}
		}
	}
}

// literals answers every string constant of the Go files below a directory, tests aside.
func literals(t *testing.T, below string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	eachFile(t, below, func(file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if word, ok := literal(n); ok {
				found[word] = true
			}
			return true
		})
	})
	return found
}

func eachFile(t *testing.T, below string, look func(*ast.File)) {
	t.Helper()
	for _, path := range files(t, below, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		look(file)
	}
}

// literal answers the text of a string literal.
func literal(n ast.Node) (string, bool) {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	word, err := strconv.Unquote(lit.Value)
	return word, err == nil
}

func TestDocsMetrics(t *testing.T) {
	whole := regexp.MustCompile(`^tidemark_[a-z_]+$`)
	exist := literals(t, "services")
	maps.Copy(exist, literals(t, "internal"))
	named := map[string]bool{}
	for _, name := range regexp.MustCompile("`(tidemark_[a-z_]+)").FindAllStringSubmatch(text(t, root+"/docs/operate.md"), -1) {
		named[name[1]] = true
		if !exist[name[1]] {
			t.Errorf("docs/operate.md names the metric %s, which the code does not have", name[1])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(exist)) {
		if whole.MatchString(name) && !named[name] {
			t.Errorf("docs/operate.md does not say what the metric %s means", name)
		}
	}
}

func TestDocsQuarantineReasons(t *testing.T) {
	page := text(t, root+"/docs/events.md")
	reasons := 0
	eachFile(t, "internal/core/admission", func(file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" {
				return true
			}
			for _, value := range spec.Values {
				if reason, ok := literal(value); ok {
					reasons++
					if !strings.Contains(page, "| `"+reason+"` |") {
						t.Errorf("docs/events.md has no row for the quarantine reason %s", reason)
					}
				}
			}
			return true
		})
	})
	if reasons == 0 {
		t.Error("no constant of type Reason was found")
	}
}

// ruleOf answers the name of a lint rule that a node of pkg/policy gives out.
func ruleOf(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.CallExpr: // refuse(line, rule, …), doc.finding(path, rule, …)
		name := ""
		switch f := v.Fun.(type) {
		case *ast.Ident:
			name = f.Name
		case *ast.SelectorExpr:
			name = f.Sel.Name
		}
		if (name == "refuse" || name == "refuseSource" || name == "finding") && len(v.Args) > 1 {
			return literal(v.Args[1])
		}
	case *ast.KeyValueExpr: // Finding{Rule: …}
		if key, ok := v.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "rule") {
			return literal(v.Value)
		}
	case *ast.ValueSpec: // const RuleX = …
		if strings.HasPrefix(v.Names[0].Name, "Rule") && len(v.Values) == 1 {
			return literal(v.Values[0])
		}
	}
	return "", false
}

func TestDocsLintRules(t *testing.T) {
	rules := map[string]bool{}
	eachFile(t, "pkg/policy", func(file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if rule, ok := ruleOf(n); ok {
				rules[rule] = true
			}
			return true
		})
	})
	if len(rules) < 30 {
		t.Errorf("only %d lint rules were found in pkg/policy: %v", len(rules), slices.Sorted(maps.Keys(rules)))
	}
	page := text(t, root+"/docs/documents.md")
	for _, rule := range slices.Sorted(maps.Keys(rules)) {
		if !strings.Contains(page, "`"+rule+"`") {
			t.Errorf("docs/documents.md does not explain the lint rule %s", rule)
		}
	}
}

var helpCommand = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) +\S`)

// subcommands answers what the help of a verb lists.
func subcommands(t *testing.T, verb ...string) []string {
	t.Helper()
	_, list, found := strings.Cut(must(t, append(verb, "--help")...), "Available Commands:\n")
	if !found {
		return nil
	}
	list, _, _ = strings.Cut(list, "\n\n")
	var names []string
	for _, m := range helpCommand.FindAllStringSubmatch(list, -1) {
		names = append(names, m[1])
	}
	return names
}

func TestDocsSubcommands(t *testing.T) {
	pages := text(t, root+"/README.md")
	for _, page := range files(t, "docs", ".md") {
		pages += text(t, page)
	}
	mentioned := func(words ...string) bool {
		return regexp.MustCompile(`tidemark ` + strings.Join(words, " ") + `\b`).MatchString(pages)
	}
	verbs := subcommands(t)
	if len(verbs) < 15 {
		t.Fatalf("the help lists %v only", verbs)
	}
	for _, verb := range verbs {
		if verb == "help" {
			continue
		}
		if !mentioned(verb) {
			t.Errorf("neither README.md nor docs/ mentions `tidemark %s`", verb)
		}
		if verb == "completion" {
			continue // its subcommands are shells
		}
		for _, sub := range subcommands(t, verb) {
			if !mentioned(verb, sub) {
				t.Errorf("neither README.md nor docs/ mentions `tidemark %s %s`", verb, sub)
			}
		}
	}
}

// What the pages show as documents must be documents.
func TestDocsDocumentsLint(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	for _, page := range []string{"README.md", "docs/documents.md"} {
		var documents []string
		for _, m := range block.FindAllStringSubmatch(text(t, filepath.Join(root, page)), -1) {
			documents = append(documents, m[1])
		}
		if len(documents) == 0 {
			t.Errorf("%s shows no document", page)
			continue
		}
		r := runInput(t, strings.Join(documents, "---\n"), "lint", "-")
		if r.code != 0 {
			t.Errorf("%s shows documents that lint refuses:\n%s%s", page, r.out, r.err)
		}
	}
}

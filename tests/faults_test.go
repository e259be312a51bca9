package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every row of docs/faults.md names tests that exist, except where it says what it waits
// for; what others report is cited by its public number.
func TestFaultsAreMapped(t *testing.T) {
	page, err := os.ReadFile("../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("\\[(?:`((?:Test|Fuzz)\\w+)`|trace)\\]\\(([^)]+)\\)")
	cited := regexp.MustCompile(`^\| [\w.-]+/[\w.-]+#\d+`)
	const traces = "../internal/verify/conformance/testdata/"
	rows, reports, section := 0, 0, ""
	for _, line := range strings.Split(string(page), "\n") {
		if strings.HasPrefix(line, "## ") {
			section = line
		}
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| fault") || strings.HasPrefix(line, "| report") || strings.HasPrefix(line, "| ---") {
			continue
		}
		rows++
		links := named.FindAllStringSubmatch(line, -1)
		if len(links) == 0 && !strings.HasPrefix(section, "## Not yet") {
			t.Errorf("no test: %s", line)
		}
		if strings.HasPrefix(section, "## What others report") {
			reports++
			if !cited.MatchString(line) {
				t.Errorf("no issue number: %s", line)
			}
		}
		for _, link := range links {
			text, err := os.ReadFile(filepath.Join("../docs", link[2]))
			if err != nil {
				t.Errorf("%v: %s", err, line)
			} else if link[1] == "" && (!strings.HasPrefix(link[2], traces) || !strings.HasSuffix(link[2], ".txt")) {
				t.Errorf("%s is no trace that the conformance suite runs", link[2])
			} else if link[1] != "" && !strings.Contains(string(text), "func "+link[1]+"(") {
				t.Errorf("%s has no %s", link[2], link[1])
			}
		}
	}
	if rows < 50 || reports < 25 {
		t.Errorf("%d rows, %d of them reports", rows, reports)
	}
}

package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every row of docs/faults.md names tests that exist, except where it says what it waits for.
func TestFaultsAreMapped(t *testing.T) {
	page, err := os.ReadFile("../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("\\[(?:`((?:Test|Fuzz)\\w+)`|trace)\\]\\(([^)]+)\\)")
	rows, section := 0, ""
	for _, line := range strings.Split(string(page), "\n") {
		if strings.HasPrefix(line, "## ") {
			section = line
		}
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| fault") || strings.HasPrefix(line, "| complaint") || strings.HasPrefix(line, "| ---") {
			continue
		}
		rows++
		links := named.FindAllStringSubmatch(line, -1)
		if len(links) == 0 && !strings.HasPrefix(section, "## Not yet") {
			t.Errorf("no test: %s", line)
		}
		for _, link := range links {
			text, err := os.ReadFile(filepath.Join("../docs", link[2]))
			if err != nil {
				t.Errorf("%v: %s", err, line)
			} else if link[1] != "" && !strings.Contains(string(text), "func "+link[1]+"(") {
				t.Errorf("%s has no %s", link[2], link[1])
			}
		}
	}
	if rows < 50 {
		t.Errorf("%d rows", rows)
	}
}

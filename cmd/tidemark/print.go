package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"golang.org/x/term"
)

// row is one line of a table beside the object that stands for it in JSON.
type row struct {
	cells  []string
	object any
}

// plain writes what a terminal would obey or not show (control characters, changes of
// direction, invalid UTF-8) as Go escapes: keys and ids are what senders made of them.
func plain(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && size == 1 || hidden(r) {
			quoted := strconv.QuoteToASCII(text[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

func hidden(r rune) bool { return !unicode.IsPrint(r) }

func (c *cli) checkOutput() error {
	switch c.output {
	case "table", "json", "ndjson", "yaml":
		return nil
	}
	return usage(fmt.Errorf("-o %q: choose table, json, ndjson or yaml", c.output))
}

// list prints rows in the chosen form. columns head the table.
func (c *cli) list(columns []string, rows []row) error {
	switch c.output {
	case "table":
		w := tabwriter.NewWriter(c.out, 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, strings.Join(columns, "\t"))
		for _, r := range rows {
			cells := make([]string, len(r.cells))
			for i, cell := range r.cells {
				cells[i] = plain(cell)
			}
			fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
		return w.Flush()
	case "ndjson":
		for _, r := range rows {
			if err := writeJSON(c.out, r.object, ""); err != nil {
				return err
			}
		}
		return nil
	}
	objects := make([]any, len(rows))
	for i, r := range rows {
		objects[i] = r.object
	}
	return c.object(objects)
}

// object prints one object; table falls back to YAML, which reads best for a single thing.
func (c *cli) object(v any) error {
	switch c.output {
	case "json":
		return writeJSON(c.out, v, "  ")
	case "ndjson":
		return writeJSON(c.out, v, "")
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	text, err = yaml.JSONToYAML(text)
	if err != nil {
		return err
	}
	_, err = c.out.Write(text)
	return err
}

func writeJSON(w io.Writer, v any, indent string) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(v)
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

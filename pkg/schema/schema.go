// Package schema holds the published schemas of everything that Tidemark reads and
// writes: JSON Schema 2020-12 files and the .proto files of frames and journals.
package schema

import (
	"embed"
	"io/fs"
	"strings"
	"unicode"
)

//go:embed *.json *.proto
var files embed.FS

// Names answers the name of every schema, sorted: businessStream.v1, frame.proto, ….
func Names() []string {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		panic("schema: embedded files cannot be listed: " + err.Error()) // they are part of the binary
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".json")
	}
	return names
}

// Lookup answers the text of a schema by its name ("businessStream.v1", "frame.proto"),
// its file name, or the kind of a document ("BusinessStream").
func Lookup(name string) ([]byte, bool) {
	for _, file := range []string{name, name + ".json", lowerFirst(name) + ".v1.json"} {
		if text, err := files.ReadFile(file); err == nil {
			return text, true
		}
	}
	return nil, false
}

func lowerFirst(name string) string {
	for i, r := range name {
		return string(unicode.ToLower(r)) + name[i+len(string(r)):]
	}
	return name
}

package envelope

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// CSVHeader turns the rows of one CSV file into JSON objects.
type CSVHeader struct {
	names []string // as JSON strings with their colon
}

// NewCSVHeader takes the first row of a CSV file: the member names of every object. A
// byte order mark before the first name, as spreadsheets write it, is dropped. Refused
// are names that are empty, not UTF-8, or the same but for case.
func NewCSVHeader(row []string) (*CSVHeader, error) {
	h := &CSVHeader{}
	for i, name := range row {
		if i == 0 {
			name = strings.TrimPrefix(name, "\ufeff")
		}
		if name == "" || !utf8.ValidString(name) {
			return nil, fmt.Errorf("CSV column %d has no name in valid UTF-8; give every column of the first row a name", i+1)
		}
		for j, earlier := range row[:i] {
			if strings.EqualFold(strings.TrimPrefix(earlier, "\ufeff"), name) {
				return nil, fmt.Errorf("CSV columns %d and %d are both named %q (upper and lower case count as the same); rename one", j+1, i+1, name)
			}
		}
		h.names = append(h.names, string(append(AppendJSONString(nil, name), ':')))
	}
	if len(h.names) == 0 {
		return nil, fmt.Errorf("the CSV file has no header row; its first row must name the columns")
	}
	return h, nil
}

// AppendObject appends one row to dst as a JSON object of strings, in the order of the
// columns. An empty cell is an empty string.
func (h *CSVHeader) AppendObject(dst []byte, row []string) ([]byte, error) {
	if len(row) != len(h.names) {
		return dst, fmt.Errorf("the CSV row has %d cells, the header has %d", len(row), len(h.names))
	}
	for i, cell := range row {
		if !utf8.ValidString(cell) {
			return dst, fmt.Errorf("CSV cell %d is not valid UTF-8; convert the file to UTF-8", i+1)
		}
	}
	dst = append(dst, '{')
	for i, cell := range row {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendJSONString(append(dst, h.names[i]...), cell)
	}
	return append(dst, '}'), nil
}

package policy

import (
	"cmp"
	"slices"
	"strconv"
)

// FieldDiff is one field in which two documents differ. Old or New is "" where the field
// is absent; otherwise it is the field's canonical JSON.
type FieldDiff struct {
	Field string `json:"field"` // path, such as window.tumbling or sources[0].partitions
	Old   string `json:"old"`
	New   string `json:"new"`
}

// Differing answers the leaf fields in which b differs from a, sorted by path.
func Differing(a, b Document) []FieldDiff {
	before, after := map[string]string{}, map[string]string{}
	flatten(a.long(), "", before)
	flatten(b.long(), "", after)
	var out []FieldDiff
	for path, old := range before {
		if after[path] != old {
			out = append(out, FieldDiff{Field: path, Old: old, New: after[path]})
		}
	}
	for path, given := range after {
		if _, both := before[path]; !both {
			out = append(out, FieldDiff{Field: path, New: given})
		}
	}
	slices.SortFunc(out, func(x, y FieldDiff) int { return cmp.Compare(x.Field, y.Field) })
	return out
}

// flatten writes every leaf of a long form into out, by its path.
func flatten(v any, path string, out map[string]string) {
	switch v := v.(type) {
	case []field:
		for _, f := range v {
			at := f.name
			if path != "" {
				at = path + "." + f.name
			}
			flatten(f.value, at, out)
		}
	case [][]field:
		for i, item := range v {
			flatten(item, path+"["+strconv.Itoa(i)+"]", out)
		}
	case []string:
		for i, item := range v {
			flatten(item, path+"["+strconv.Itoa(i)+"]", out)
		}
	default:
		out[path] = string(appendCanonical(nil, v))
	}
}

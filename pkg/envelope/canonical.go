package envelope

import (
	"bytes"
	"crypto/sha256"
	"slices"
)

// Canonical appends the canonical form of the JSON text src to dst: no space between
// tokens, members sorted bytewise by their decoded UTF-8 names, members whose value is
// null left out at every level, numbers exactly as written (1.0 and 1 differ), strings
// with only \" \\ \b \t \n \f \r and \u00xx (lowercase) for the other control
// characters escaped and everything else as it is. A null that is an element of an
// array, or the whole text, stays: its place is information.
//
// The error is a *JSONError, also for containers nested deeper than MaxDepth.
func Canonical(dst, src []byte) ([]byte, error) {
	var d Document
	if err := d.Parse(src, MaxDepth); err != nil {
		return dst, err
	}
	return d.AppendCanonical(dst, 0), nil
}

// DigestJSON answers SHA-256 of the canonical form of src.
func DigestJSON(src []byte) ([32]byte, error) {
	text, err := Canonical(make([]byte, 0, len(src)), src)
	if err != nil {
		return [32]byte{}, err
	}
	return sha256.Sum256(text), nil
}

// AppendCanonical appends the canonical form of n.
func (d *Document) AppendCanonical(dst []byte, n Node) []byte {
	v := &d.nodes[n]
	switch v.kind {
	case Object:
		return d.canonicalObject(dst, int32(n))
	case Array:
		dst = append(dst, '[')
		for i, end := int32(n)+1, v.next; i < end; i = d.nodes[i].next {
			if i > int32(n)+1 {
				dst = append(dst, ',')
			}
			dst = d.AppendCanonical(dst, Node(i))
		}
		return append(dst, ']')
	case String:
		if v.escaped {
			return AppendJSONString(dst, d.Text(n))
		}
	}
	return append(dst, d.src[v.start:v.end]...)
}

func (d *Document) canonicalObject(dst []byte, object int32) []byte {
	base := len(d.order)
	for i, end := object+1, d.nodes[object].next; i < end; i = d.nodes[i].next {
		if d.nodes[i].kind != Null {
			d.order = append(d.order, i)
		}
	}
	d.sortMembers(d.order[base:])
	dst = append(dst, '{')
	for at, end := base, len(d.order); at < end; at++ {
		if at > base {
			dst = append(dst, ',')
		}
		i := d.order[at]
		n := &d.nodes[i]
		// A plain scalar right behind a plain name is one stretch of the source.
		if !n.nameEscaped && !n.escaped && n.kind < Array && n.start == n.nameEnd+2 {
			dst = append(dst, d.src[n.nameStart-1:n.end]...)
			continue
		}
		if n.nameEscaped {
			dst = AppendJSONString(dst, alias(d.decodedName(i)))
		} else {
			dst = append(dst, d.src[n.nameStart-1:n.nameEnd+1]...)
		}
		dst = append(dst, ':')
		dst = d.AppendCanonical(dst, Node(i))
	}
	d.order = d.order[:base]
	return append(dst, '}')
}

func (d *Document) sortMembers(list []int32) {
	if len(list) > pairwise {
		slices.SortFunc(list, d.compareNames)
		return
	}
	for i := 1; i < len(list); i++ {
		x := list[i]
		j := i
		for ; j > 0 && d.compareNames(x, list[j-1]) < 0; j-- {
			list[j] = list[j-1]
		}
		list[j] = x
	}
}

func (d *Document) compareNames(a, b int32) int {
	x, y := &d.nodes[a], &d.nodes[b]
	switch {
	case x.prefix < y.prefix:
		return -1
	case x.prefix > y.prefix:
		return 1
	}
	return bytes.Compare(d.decodedName(a), d.decodedName(b))
}

// AppendJSONString appends text as a JSON string in the escape form of Canonical. text
// must be valid UTF-8.
func AppendJSONString(dst []byte, text string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(dst, text[from:]...), '"')
}

package envelope

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks, in the high bit of each byte, quotes, backslashes, control characters
// and bytes beyond ASCII. The lowest mark is always right; one above it may be false.
func special(x uint64) uint64 {
	quote := x ^ ('"' * ones)
	slash := x ^ ('\\' * ones)
	return ((quote-ones)&^quote | (slash-ones)&^slash | (x-' '*ones)&^x | x) & highs
}

// plainRun answers the first index from i whose byte is a quote, a backslash, a control
// character or not ASCII; len(src) if there is none. Eight bytes at a time.
func plainRun(src []byte, i int) int {
	for i+8 <= len(src) {
		if hit := special(binary.LittleEndian.Uint64(src[i:])); hit != 0 {
			return i + bits.TrailingZeros64(hit)>>3
		}
		i += 8
	}
	for i < len(src) && src[i] != '"' && src[i] != '\\' && src[i] >= ' ' && src[i] < 0x80 {
		i++
	}
	return i
}

// escapeLen answers how many bytes the escape at the start of b has, surrogate pairs
// counted as one escape; 0 if it is none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		r := hex4(b[2:])
		switch {
		case r < 0:
			return 0
		case !utf16.IsSurrogate(r):
			return 6
		case len(b) >= 12 && b[6] == '\\' && b[7] == 'u' &&
			utf16.DecodeRune(r, hex4(b[8:])) != unicode.ReplacementChar:
			return 12
		}
	}
	return 0
}

// hex4 answers the number that four hexadecimal digits write, or -1.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// appendUnescaped appends the text that the checked inside of a JSON string stands for.
func appendUnescaped(dst, inside []byte) []byte {
	for i := 0; i < len(inside); {
		if inside[i] != '\\' {
			next := bytes.IndexByte(inside[i:], '\\')
			if next < 0 {
				return append(dst, inside[i:]...)
			}
			dst = append(dst, inside[i:i+next]...)
			i += next
			continue
		}
		switch c := inside[i+1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(inside[i+2:])
			if utf16.IsSurrogate(r) {
				r = utf16.DecodeRune(r, hex4(inside[i+8:]))
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
			i += 4
		default:
			dst = append(dst, c)
		}
		i += 2
	}
	return dst
}

// shortName reads a member name of at most seven plain bytes in one step, and answers
// size -1 for every other name.
func shortName(src []byte, start int) (prefix uint64, fold uint32, size int) {
	if start+8 > len(src) {
		return 0, 0, -1
	}
	x := binary.LittleEndian.Uint64(src[start:])
	hit := special(x)
	end := bits.TrailingZeros64(hit) &^ 7
	if hit == 0 || byte(x>>end) != '"' {
		return 0, 0, -1
	}
	x &= 1<<end - 1
	size = end >> 3
	return bits.ReverseBytes64(x), mix(foldSeed(size), x), size
}

// nameMarks answers the sort prefix and the folded hash of a member name.
func (d *Document) nameMarks(name []byte, escaped, wide bool) (prefix uint64, fold uint32) {
	if !escaped && !wide {
		return headOf(name), foldHash(name)
	}
	d.text = d.text[:0]
	if escaped {
		d.text = appendUnescaped(d.text, name)
		name = d.text
	}
	prefix = headOf(name)
	at := len(d.text)
	d.text = appendFolded(d.text, name)
	return prefix, foldHash(d.text[at:])
}

// headOf answers the first eight bytes, big-endian, zero-padded.
func headOf(name []byte) uint64 {
	if len(name) >= 8 {
		return binary.BigEndian.Uint64(name)
	}
	var x uint64
	for i, c := range name {
		x |= uint64(c) << (56 - 8*i)
	}
	return x
}

func foldSeed(size int) uint64 { return uint64(size) * 0x9e3779b97f4a7c15 }

// mix folds eight bytes of a name into a hash. Dropping bit 5 of every byte makes
// upper and lower case letters equal (and a few other pairs, which the exact
// comparison after a hit tells apart).
func mix(h, x uint64) uint32 {
	h = (h ^ x&^(0x20*ones)) * 0xd6e8feb86659fd93
	return uint32(h >> 32)
}

// foldHash answers the hash of a name that appendFolded has normalised, or of an ASCII name.
func foldHash(name []byte) uint32 {
	h := foldSeed(len(name))
	if len(name) <= 8 {
		return mix(h, bits.ReverseBytes64(headOf(name)))
	}
	for rest := name; ; rest = rest[8:] {
		if len(rest) <= 8 {
			return mix(h, binary.LittleEndian.Uint64(name[len(name)-8:]))
		}
		h = bits.RotateLeft64((h^binary.LittleEndian.Uint64(rest)&^(0x20*ones))*0xd6e8feb86659fd93, 29)
	}
}

// appendFolded appends name with every rune replaced by the least rune that simple case
// folding holds equal to it: K, k and the Kelvin sign all become K.
func appendFolded(dst, name []byte) []byte {
	for _, r := range string(name) {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		dst = utf8.AppendRune(dst, least)
	}
	return dst
}

// pairwise is the number of members up to which comparing each with each is cheapest.
const pairwise = 12

// checkTwins notes the first member of the object whose name is that of an earlier one,
// case set aside. A filter of 64 bits spares most members the comparison.
func (d *Document) checkTwins(self, members int) {
	if members < 2 || d.twin >= 0 {
		return
	}
	if members > pairwise {
		d.checkManyTwins(self)
		return
	}
	seen := uint64(0)
	for i := self + 1; i < len(d.nodes); i = int(d.nodes[i].next) {
		fold := d.nodes[i].fold
		bit := uint64(1) << (fold & 63)
		if seen&bit != 0 {
			for j := self + 1; j < i; j = int(d.nodes[j].next) {
				if d.nodes[j].fold == fold && d.sameFolded(int32(j), int32(i)) {
					d.noteTwin(int32(j), int32(i))
					return
				}
			}
		}
		seen |= bit
	}
}

func (d *Document) checkManyTwins(self int) {
	list := d.order[:0]
	for i := self + 1; i < len(d.nodes); i = int(d.nodes[i].next) {
		list = append(list, int32(i))
	}
	d.order = list[:0]
	slices.SortFunc(list, d.compareFolded)
	first := [2]int32{-1, -1}
	for i := 1; i < len(list); i++ {
		a, b := list[i-1], list[i]
		if d.nodes[a].fold == d.nodes[b].fold && d.sameFolded(a, b) && (first[1] < 0 || b < first[1]) {
			first = [2]int32{a, b}
		}
	}
	if first[1] >= 0 {
		d.noteTwin(first[0], first[1])
	}
}

func (d *Document) noteTwin(earlier, later int32) {
	d.twin = int(d.nodes[later].nameStart) - 1
	d.twinOf = [2]string{string(d.decodedName(earlier)), string(d.decodedName(later))}
}

func (d *Document) sameFolded(a, b int32) bool {
	return bytes.EqualFold(d.decodedName(a), d.decodedName(b))
}

// compareFolded orders members by hash, then by folded name, then by place: equal hashes
// made on purpose cost no more than a sort by name.
func (d *Document) compareFolded(a, b int32) int {
	x, y := &d.nodes[a], &d.nodes[b]
	switch {
	case x.fold < y.fold:
		return -1
	case x.fold > y.fold:
		return 1
	}
	left, right := d.decodedName(a), d.decodedName(b)
	if !bytes.Equal(left, right) && !bytes.EqualFold(left, right) {
		return bytes.Compare(appendFolded(nil, left), appendFolded(nil, right))
	}
	return int(a - b)
}

// decodedName answers a member's name; a copy if it has escapes, else part of the source.
func (d *Document) decodedName(i int32) []byte {
	n := &d.nodes[i]
	name := d.src[n.nameStart:n.nameEnd]
	if n.nameEscaped {
		return appendUnescaped(nil, name)
	}
	return name
}

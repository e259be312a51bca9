// Package identity builds the ids of Tidemark (design: "Identities").
//
// Every id is a function of business facts alone, so two processes that never met name
// the same window, projection or effect alike. The functions are called for every event
// or window; they build their input in a buffer on the stack. The Append variants save
// the string where the caller has a buffer anyway.
package identity

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// HexSize is the length of an id in its text form.
const HexSize = 2 * sha256.Size

// scratch is room for the input of a digest: two ids and a key of 256 bytes fit, longer
// input moves to the heap by itself.
const scratch = 512

const (
	tagLogicalWindow = "logicalWindow.v1"
	tagProjection    = "projection.v1"
	tagEffect        = "effect.v1"
)

// H answers lowercase hex SHA-256 of tag and every field written as "<byte length>:<bytes>", joined by "|".
func H(tag string, fields ...string) string {
	var room [scratch]byte
	in := append(room[:0], tag...)
	for _, field := range fields {
		in = appendField(append(in, '|'), field)
	}
	return hexText(in)
}

// LogicalWindow answers the id of a business window: no job, no policy.
func LogicalWindow(stream, key string, start, end envelope.EventTime) string {
	var text [HexSize]byte
	return string(AppendLogicalWindow(text[:0], stream, key, start, end))
}

// AppendLogicalWindow appends what LogicalWindow answers.
func AppendLogicalWindow(dst []byte, stream, key string, start, end envelope.EventTime) []byte {
	var room [scratch]byte
	in := append(room[:0], tagLogicalWindow+"|"...)
	in = appendField(in, stream)
	in = appendField(append(in, '|'), key)
	in = appendNumberField(append(in, '|'), int64(start))
	in = appendNumberField(append(in, '|'), int64(end))
	return appendHex(dst, in)
}

// Projection answers the id of a window's result under one policy generation.
func Projection(logicalWindowID, policyGeneration string) string {
	var text [HexSize]byte
	return string(AppendProjection(text[:0], logicalWindowID, policyGeneration))
}

// AppendProjection appends what Projection answers.
func AppendProjection(dst []byte, logicalWindowID, policyGeneration string) []byte {
	var room [scratch]byte
	in := append(room[:0], tagProjection+"|"...)
	in = appendField(in, logicalWindowID)
	in = appendField(append(in, '|'), policyGeneration)
	return appendHex(dst, in)
}

// Effect answers the key of an effect.
func Effect(effectType, logicalWindowID, businessSubject string) string {
	return H(tagEffect, effectType, logicalWindowID, businessSubject)
}

// SessionResult answers the result id of a session: one id for one set of members,
// whatever their order and however often one is named. With several sources a member is
// "<source>#<id>". members is left as it is.
func SessionResult(key, ruleVersion string, members []string) string {
	sorted := slices.Clone(members)
	slices.Sort(sorted)
	var room [scratch]byte
	id, _ := SortedSessionResult(room[:0], key, ruleVersion, slices.Compact(sorted))
	return id
}

// SortedSessionResult answers what SessionResult does for members that are sorted and
// distinct. It builds its input in in, which it answers to be used again.
func SortedSessionResult(in []byte, key, ruleVersion string, members []string) (id string, room []byte) {
	in = append(in, key...)
	in = append(append(in, '|'), ruleVersion...)
	for _, member := range members {
		in = strconv.AppendInt(append(in, '|'), int64(utf8.RuneCountInString(member)), 10)
		in = append(append(in, ':'), member...)
	}
	return hexText(in), in
}

// EventHash answers the first 16 bytes of SHA-256("<len>:<source>|<len>:<id>"): what an
// idDigest sums and what the id index is keyed by.
func EventHash(source, id string) [16]byte {
	var room [scratch]byte
	in := appendField(room[:0], source)
	in = appendField(append(in, '|'), id)
	sum := sha256.Sum256(in)
	return [16]byte(sum[:16])
}

// Sum128 adds two numbers mod 2^128, big-endian.
func Sum128(a, b [16]byte) [16]byte {
	lo, carry := bits.Add64(low(a), low(b), 0)
	hi, _ := bits.Add64(high(a), high(b), carry)
	return join(hi, lo)
}

// Sub128 subtracts b from a mod 2^128, big-endian.
func Sub128(a, b [16]byte) [16]byte {
	lo, borrow := bits.Sub64(low(a), low(b), 0)
	hi, _ := bits.Sub64(high(a), high(b), borrow)
	return join(hi, lo)
}

func high(n [16]byte) uint64 { return binary.BigEndian.Uint64(n[:8]) }

func low(n [16]byte) uint64 { return binary.BigEndian.Uint64(n[8:]) }

func join(hi, lo uint64) (n [16]byte) {
	binary.BigEndian.PutUint64(n[:8], hi)
	binary.BigEndian.PutUint64(n[8:], lo)
	return n
}

func appendField(dst []byte, field string) []byte {
	dst = strconv.AppendInt(dst, int64(len(field)), 10)
	return append(append(dst, ':'), field...)
}

// appendNumberField is appendField of n's decimal text.
func appendNumberField(dst []byte, n int64) []byte {
	var room [20]byte
	digits := strconv.AppendInt(room[:0], n, 10)
	dst = strconv.AppendInt(dst, int64(len(digits)), 10)
	return append(append(dst, ':'), digits...)
}

func appendHex(dst, in []byte) []byte {
	sum := sha256.Sum256(in)
	return hex.AppendEncode(dst, sum[:])
}

func hexText(in []byte) string {
	var text [HexSize]byte
	return string(appendHex(text[:0], in))
}

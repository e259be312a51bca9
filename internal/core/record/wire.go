package record

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Wire types of protobuf that records use.
const (
	wireVarint = 0
	wireBytes  = 2
)

var errTruncated = errors.New("the record ends inside a field")

func appendTag(dst []byte, field, wire int) []byte {
	return binary.AppendUvarint(dst, uint64(field)<<3|uint64(wire))
}

func appendUint(dst []byte, field int, n uint64) []byte {
	if n == 0 {
		return dst
	}
	return binary.AppendUvarint(appendTag(dst, field, wireVarint), n)
}

// appendSint writes n zigzag: small magnitudes are short, whatever the sign.
func appendSint(dst []byte, field int, n int64) []byte {
	return appendUint(dst, field, uint64(n)<<1^uint64(n>>63))
}

func appendBool(dst []byte, field int, b bool) []byte {
	if !b {
		return dst
	}
	return append(appendTag(dst, field, wireVarint), 1)
}

func appendText(dst []byte, field int, s string) []byte {
	if s == "" {
		return dst
	}
	return append(binary.AppendUvarint(appendTag(dst, field, wireBytes), uint64(len(s))), s...)
}

func appendBytes(dst []byte, field int, b []byte) []byte {
	return append(binary.AppendUvarint(appendTag(dst, field, wireBytes), uint64(len(b))), b...)
}

// appendMessage writes a nested message that body appends. The length is written after
// the body is known: one byte is kept free, and the body moves when it needs more.
func appendMessage(dst []byte, field int, body func([]byte) []byte) []byte {
	dst = append(appendTag(dst, field, wireBytes), 0)
	at := len(dst)
	dst = body(dst)
	size := len(dst) - at
	if size < 0x80 {
		dst[at-1] = byte(size)
		return dst
	}
	var room [binary.MaxVarintLen64]byte
	length := binary.PutUvarint(room[:], uint64(size))
	dst = append(dst, room[:length-1]...)
	copy(dst[at-1+length:], dst[at:at+size])
	copy(dst[at-1:], room[:length])
	return dst
}

// reader walks over the fields of one message. Strings share text.
type reader struct {
	text string
	pos  int
	err  error

	field int
	wire  int
	n     uint64 // value of a varint field
	body  string // value of a bytes field
}

// next moves to the next field; false at the end or after an error.
func (r *reader) next() bool {
	if r.err != nil || r.pos >= len(r.text) {
		return false
	}
	tag, ok := r.uvarint()
	if !ok {
		return false
	}
	if tag>>3 == 0 || tag>>3 > 1<<16 {
		r.err = fmt.Errorf("field number %d is out of range", tag>>3)
		return false
	}
	r.field, r.wire, r.n, r.body = int(tag>>3), int(tag&7), 0, ""
	switch r.wire {
	case wireVarint:
		r.n, ok = r.uvarint()
		return ok
	case wireBytes:
		size, ok := r.uvarint()
		if !ok {
			return false
		}
		if size > uint64(len(r.text)-r.pos) {
			r.err = errTruncated
			return false
		}
		r.body = r.text[r.pos : r.pos+int(size)]
		r.pos += int(size)
		return true
	}
	r.err = fmt.Errorf("field %d has wire type %d, which records do not use", r.field, r.wire)
	return false
}

func (r *reader) uvarint() (uint64, bool) {
	var n uint64
	for shift := uint(0); shift < 64; shift += 7 {
		if r.pos >= len(r.text) {
			r.err = errTruncated
			return 0, false
		}
		b := r.text[r.pos]
		r.pos++
		if shift == 63 && b > 1 {
			break
		}
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n, true
		}
	}
	r.err = errors.New("a number is longer than 64 bits")
	return 0, false
}

// is tells whether the field has the wire type that its number demands.
func (r *reader) is(wire int) bool {
	if r.wire != wire && r.err == nil {
		r.err = fmt.Errorf("field %d has wire type %d, want %d", r.field, r.wire, wire)
	}
	return r.err == nil
}

func (r *reader) uint() uint64 {
	if !r.is(wireVarint) {
		return 0
	}
	return r.n
}

func (r *reader) uint32() uint32 {
	n := r.uint()
	if n > 1<<32-1 && r.err == nil {
		r.err = fmt.Errorf("field %d is %d, which has more than 32 bits", r.field, n)
	}
	return uint32(n)
}

func (r *reader) sint() int64 {
	n := r.uint()
	return int64(n>>1) ^ -int64(n&1)
}

func (r *reader) bool() bool {
	n := r.uint()
	if n > 1 && r.err == nil {
		r.err = fmt.Errorf("field %d is %d, want 0 or 1", r.field, n)
	}
	return n == 1
}

func (r *reader) string() string {
	if !r.is(wireBytes) {
		return ""
	}
	return r.body
}

// fill copies a bytes field of exactly len(dst) bytes.
func (r *reader) fill(dst []byte) {
	if !r.is(wireBytes) {
		return
	}
	if len(r.body) != len(dst) {
		r.err = fmt.Errorf("field %d has %d bytes, want %d", r.field, len(r.body), len(dst))
		return
	}
	copy(dst, r.body)
}

// message reads the field as a nested message.
func (r *reader) message(field func(*reader)) {
	if !r.is(wireBytes) {
		return
	}
	in := reader{text: r.body}
	for in.next() {
		field(&in)
	}
	if in.err != nil {
		r.err = fmt.Errorf("field %d: %w", r.field, in.err)
	}
}

func (r *reader) unknown() {
	if r.err == nil {
		r.err = fmt.Errorf("field %d is unknown", r.field)
	}
}

package envelope

import "math/bits"

// The few parts of protobuf's wire format that frames need. Zero values are left out,
// as proto3 has it.

func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func appendVarint(dst []byte, v uint64) []byte {
	for v >= 0x80 {
		dst = append(dst, byte(v)|0x80)
		v >>= 7
	}
	return append(dst, byte(v))
}

func appendTag(dst []byte, field, wire int) []byte {
	if field < 16 {
		return append(dst, byte(field<<3|wire))
	}
	return append(dst, byte(field<<3|wire)|0x80, byte(field>>4))
}

// appendNumber appends a varint field; nothing for 0.
func appendNumber(dst []byte, field int, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return appendVarint(appendTag(dst, field, wireVarint), v)
}

// appendString appends a string field; nothing for "".
func appendString(dst []byte, field int, text string) []byte {
	if text == "" {
		return dst
	}
	return appendText(dst, field, text)
}

// appendText appends a string field, also an empty one: an entry of a list.
func appendText(dst []byte, field int, text string) []byte {
	dst = appendVarint(appendTag(dst, field, wireBytes), uint64(len(text)))
	return append(dst, text...)
}

func varintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// appendTimes appends a packed list of zigzag numbers.
func appendTimes(dst []byte, field int, times []EventTime) []byte {
	if len(times) == 0 {
		return dst
	}
	size := 0
	for _, t := range times {
		size += varintLen(zigzag(int64(t)))
	}
	dst = appendVarint(appendTag(dst, field, wireBytes), uint64(size))
	for _, t := range times {
		dst = appendVarint(dst, zigzag(int64(t)))
	}
	return dst
}

// appendValues appends all numbers packed and, only if there is a text among the
// values, all texts.
func appendValues(dst []byte, values []Value) []byte {
	if len(values) == 0 {
		return dst
	}
	size, texts := 0, false
	for i := range values {
		size += varintLen(zigzag(values[i].Int))
		texts = texts || values[i].Text != ""
	}
	dst = appendVarint(appendTag(dst, eventInts, wireBytes), uint64(size))
	for i := range values {
		dst = appendVarint(dst, zigzag(values[i].Int))
	}
	if texts {
		for i := range values {
			dst = appendText(dst, eventTexts, values[i].Text)
		}
	}
	return dst
}

// openMessage appends the tag of a nested message and room for a two-byte length: most
// records have 128 to 16,383 bytes, and a length may be written longer than needed.
func openMessage(dst []byte, field int) (grown []byte, start int) {
	dst = append(dst, byte(field<<3|wireBytes), 0x80, 0)
	return dst, len(dst)
}

// closeMessage writes the length of the message that started at start.
func closeMessage(dst []byte, start int) []byte {
	size := len(dst) - start
	if size < 1<<14 {
		dst[start-2], dst[start-1] = byte(size)|0x80, byte(size>>7)
		return dst
	}
	extra := varintLen(uint64(size)) - 2
	for range extra {
		dst = append(dst, 0)
	}
	copy(dst[start+extra:], dst[start:start+size])
	appendVarint(dst[:start-2], uint64(size))
	return dst
}

package revision

import (
	"encoding/hex"
	"strconv"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// appendString writes a JSON string in the one form of canonical JSON. s must be valid UTF-8.
func appendString(dst []byte, s string) []byte {
	if !plain(s) {
		return envelope.AppendJSONString(dst, s)
	}
	return append(append(append(dst, '"'), s...), '"')
}

// plain tells whether s holds nothing that must be escaped. Ids and names nearly always
// are plain, so eight bytes are looked at together: a byte below n, or equal to c after
// the xor, borrows into its top bit.
func plain(s string) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for len(s) >= 8 {
		w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		quote, slash := w^ones*'"', w^ones*'\\'
		if ((w-ones*' ')&^w|(quote-ones)&^quote|(slash-ones)&^slash)&tops != 0 {
			return false
		}
		s = s[8:]
	}
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] == '"' || s[i] == '\\' {
			return false
		}
	}
	return true
}

func appendDigest(dst []byte, d Digest) []byte {
	return append(d.append(append(dst, '"')), '"')
}

func appendIDDigest(dst []byte, d [16]byte) []byte {
	return append(hex.AppendEncode(append(dst, '"'), d[:]), '"')
}

// appendTime writes t as EventTime.String does, in quotes.
func appendTime(dst []byte, t envelope.EventTime) []byte {
	const perDay = 24 * 60 * 60 * 1_000_000
	day, rest := int64(t)/perDay, int64(t)%perDay
	if rest < 0 {
		day, rest = day-1, rest+perDay
	}
	year, month, dom := civil(day)
	if year < 0 || year > 9999 {
		return append(append(append(dst, '"'), t.String()...), '"') // the bounds, and what RFC 3339 cannot say
	}
	sec, frac := int(rest/1_000_000), int(rest%1_000_000)
	dst = append(dst, '"')
	dst = append2(append2(dst, year/100), year%100)
	dst = append2(append(dst, '-'), month)
	dst = append2(append(dst, '-'), dom)
	dst = append2(append(dst, 'T'), sec/3600)
	dst = append2(append(dst, ':'), sec/60%60)
	dst = append2(append(dst, ':'), sec%60)
	if frac > 0 {
		dst = append2(append(dst, '.'), frac/10_000)
		dst = append2(append2(dst, frac/100%100), frac%100)
		for dst[len(dst)-1] == '0' {
			dst = dst[:len(dst)-1]
		}
	}
	return append(dst, 'Z', '"')
}

func append2(dst []byte, n int) []byte { return append(dst, byte('0'+n/10), byte('0'+n%10)) }

// civil answers the date of a day counted from 1970-01-01 in the Gregorian calendar.
// It counts in eras of 400 years that begin on March 1st, so that the leap day is last.
func civil(day int64) (year, month, dom int) {
	day += 719_468 // days from 0000-03-01 to 1970-01-01
	era := day / 146_097
	if day%146_097 < 0 {
		era--
	}
	doe := int(day - era*146_097)
	yoe := (doe - doe/1460 + doe/36_524 - doe/146_096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	dom = doy - (153*mp+2)/5 + 1
	month = mp + 3
	if month > 12 {
		month -= 12
	}
	year = yoe + int(era)*400
	if month <= 2 {
		year++
	}
	return year, month, dom
}

// appendFields writes named results as one object.
func appendFields(dst []byte, fields []Field) []byte {
	dst = append(dst, '{')
	for i := range fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, fields[i].Name), ':')
		if fields[i].Quoted {
			dst = appendString(dst, fields[i].Text)
		} else {
			dst = append(dst, fields[i].Text...)
		}
	}
	return append(dst, '}')
}

func appendUint(dst []byte, n uint64) []byte { return strconv.AppendUint(dst, n, 10) }

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

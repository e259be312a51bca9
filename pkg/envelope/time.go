package envelope

import (
	"fmt"
	"math"
	"time"
)

// EventTime is when something happened in the business, in Unix microseconds UTC.
// It is a type of its own so that arrival time can never stand in for it:
// the fallback to processing time does not compile.
type EventTime int64

// IngestTime is when an event reached Tidemark's door, in Unix microseconds UTC.
type IngestTime int64

// Bounds of EventTime. A watermark of MinEventTime promises nothing; one of
// MaxEventTime promises that no event comes any more.
const (
	MinEventTime EventTime = math.MinInt64
	MaxEventTime EventTime = math.MaxInt64
)

// Add answers t moved by d microseconds, saturating at the bounds instead of wrapping.
// The bounds themselves stay where they are: infinity plus a day is infinity.
func (t EventTime) Add(d int64) EventTime {
	if t == MinEventTime || t == MaxEventTime {
		return t
	}
	sum := int64(t) + d
	switch {
	case d > 0 && sum < int64(t):
		return MaxEventTime
	case d < 0 && sum > int64(t):
		return MinEventTime
	}
	return EventTime(sum)
}

// Time answers t as a time.Time in UTC; meaningless for the two bounds.
func (t EventTime) Time() time.Time { return time.UnixMicro(int64(t)).UTC() }

// String answers RFC 3339 in UTC with as many fraction digits as needed (at most six),
// or "-inf" and "+inf" for the bounds.
func (t EventTime) String() string {
	switch t {
	case MinEventTime:
		return "-inf"
	case MaxEventTime:
		return "+inf"
	}
	return t.Time().Format("2006-01-02T15:04:05.999999Z07:00")
}

// String answers RFC 3339 in UTC.
func (t IngestTime) String() string {
	return time.UnixMicro(int64(t)).UTC().Format("2006-01-02T15:04:05.999999Z07:00")
}

// MarshalText writes what String answers.
func (t EventTime) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (t *EventTime) UnmarshalText(text []byte) error {
	parsed, err := ParseEventTime(string(text))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}

// ParseEventTime reads RFC 3339 (any offset, at most microsecond precision is kept
// exactly; finer digits are refused) or "-inf" and "+inf".
func ParseEventTime(text string) (EventTime, error) {
	switch text {
	case "-inf":
		return MinEventTime, nil
	case "+inf":
		return MaxEventTime, nil
	}
	t, fine, ok := ParseRFC3339(text)
	switch {
	case !ok:
		return 0, fmt.Errorf("%q is no RFC 3339 time such as 2026-11-30T10:00:00Z", text)
	case fine:
		return 0, fmt.Errorf("%q is finer than a microsecond", text)
	}
	return t, nil
}

package effect

import (
	"fmt"
	"time"
)

// Time is an instant on the effector's clock, in Unix microseconds UTC: the server's
// stored time of its CLAIM and the monotonic time since. It is no event time and no
// ingest time. Zero is no instant.
type Time int64

// MaxTime is the last instant that RFC 3339 can write.
const MaxTime Time = 253_402_300_799_999_999

// Add answers t moved by d microseconds, held within 0 and MaxTime.
func (t Time) Add(d int64) Time {
	switch {
	case d > 0 && t > MaxTime-Time(d):
		return MaxTime
	case d < 0 && Time(d) < -t:
		return 0
	}
	return t + Time(d)
}

// String answers RFC 3339 in UTC with as many fraction digits as needed, at most six.
func (t Time) String() string {
	return time.UnixMicro(int64(t)).UTC().Format("2006-01-02T15:04:05.999999Z07:00")
}

// MarshalText writes what String answers.
func (t Time) MarshalText() ([]byte, error) {
	if t < 0 || t > MaxTime {
		return nil, fmt.Errorf("%d µs since 1970 is outside of what RFC 3339 can write", int64(t))
	}
	return []byte(t.String()), nil
}

// UnmarshalText reads what MarshalText wrote. A finer fraction than microseconds and an
// offset other than Z are refused: an instant has one text form.
func (t *Time) UnmarshalText(text []byte) error {
	parsed, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return fmt.Errorf("want an RFC 3339 time in UTC: %d bytes that are none", len(text))
	}
	instant := Time(parsed.UnixMicro())
	if instant < 0 || instant > MaxTime || instant.String() != string(text) {
		return fmt.Errorf("want an RFC 3339 time in UTC from 1970 on, with at most six fraction digits and none that is a trailing zero")
	}
	*t = instant
	return nil
}

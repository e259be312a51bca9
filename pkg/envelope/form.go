package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// EncodeForm writes v as JSON in the one form that DecodeForm reads, without escaping what
// only HTML needs escaped. schema is for the error.
func EncodeForm(schema string, v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("%s: %w", schema, err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'}), nil
}

// DecodeForm fills v, lets validate check it, and checks that data (at most limit bytes)
// is what EncodeForm writes of it, member order and white space aside. That one comparison
// finds whatever encoding/json lets pass: names in another case, missing members, another
// text of the same time or number. No error repeats a value.
func DecodeForm(schema string, data []byte, limit int, v any, validate func() error) error {
	if len(data) > limit {
		return fmt.Errorf("%s: %d bytes, more than the %d that one may have", schema, len(data), limit)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%s: %w", schema, WithoutValue(err))
	}
	if err := validate(); err != nil {
		return err
	}
	again, err := EncodeForm(schema, v)
	if err != nil {
		return err
	}
	// What EncodeForm wrote, byte for byte, needs no second look; journals hold little else.
	if bytes.Equal(data, again) {
		return nil
	}
	given, err := Canonical(nil, data)
	if err != nil {
		return fmt.Errorf("%s: %w", schema, err)
	}
	own, err := Canonical(nil, again)
	if err != nil {
		return fmt.Errorf("%s: %w", schema, err)
	}
	if !bytes.Equal(given, own) {
		return fmt.Errorf("%s: not in its one form: a member is missing, empty, or written in another way (case of a name, form of a time or number)", schema)
	}
	return nil
}

// WithoutValue takes the offending value out of an error of encoding/json.
func WithoutValue(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("member %s at byte %d is no %s", wrong.Field, wrong.Offset, wrong.Type)
	}
	return err
}

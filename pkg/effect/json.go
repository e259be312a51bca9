package effect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// MaxRecordSize bounds the JSON of a record or receipt, in bytes: 64 KiB of payload, each
// byte escaped in the longest way, and the rest.
const MaxRecordSize = 512 << 10

// Encode answers the record as JSON. It fails with the rule that the record breaks.
func (r *Record) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return encode(Schema, r)
}

// Decode reads what (*Record).Encode wrote; members may stand in any order. It is strict:
// unknown, missing and repeated members, other forms of one value and broken rules are
// errors; a null where a member may be left out counts as left out. No error repeats the
// payload, since that may hold what is nobody's business.
func Decode(data []byte) (*Record, error) {
	r := new(Record)
	if err := decode(Schema, data, r, r.Validate); err != nil {
		return nil, err
	}
	return r, nil
}

// Encode answers the receipt as JSON. It fails with the rule that the receipt breaks.
func (r *Receipt) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return encode(ReceiptSchema, r)
}

// DecodeReceipt reads a receipt, as strictly as Decode. It does not verify signatures.
func DecodeReceipt(data []byte) (*Receipt, error) {
	r := new(Receipt)
	if err := decode(ReceiptSchema, data, r, r.Validate); err != nil {
		return nil, err
	}
	return r, nil
}

// encode writes v without escaping what only HTML needs escaped.
func encode(schema string, v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("%s: %w", schema, err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'}), nil
}

// decode fills v and checks that data is what encode writes of it, member order and white
// space aside. That one comparison finds whatever encoding/json lets pass: names in
// another case, missing members, another text of the same time or number.
func decode(schema string, data []byte, v any, validate func() error) error {
	if len(data) > MaxRecordSize {
		return fmt.Errorf("%s: %d bytes, more than the %d that one may have", schema, len(data), MaxRecordSize)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%s: %w", schema, withoutValue(err))
	}
	if err := validate(); err != nil {
		return err
	}
	again, err := encode(schema, v)
	if err != nil {
		return err
	}
	// What encode wrote, byte for byte, needs no second look; journals hold little else.
	if bytes.Equal(data, again) {
		return nil
	}
	given, err := canonical(schema, data)
	if err != nil {
		return err
	}
	own, err := canonical(schema, again)
	if err != nil {
		return err
	}
	if !bytes.Equal(given, own) {
		return fmt.Errorf("%s: not in its one form: a member is missing, empty, or written in another way (case of a name, form of a time or number)", schema)
	}
	return nil
}

// canonical answers minified JSON with sorted members and no nulls; repeated members are
// errors.
func canonical(schema string, data []byte) ([]byte, error) {
	text, err := envelope.Canonical(nil, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", schema, err)
	}
	return text, nil
}

// withoutValue takes the offending value out of an error of encoding/json.
func withoutValue(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("member %s at byte %d is no %s", wrong.Field, wrong.Offset, wrong.Type)
	}
	return err
}

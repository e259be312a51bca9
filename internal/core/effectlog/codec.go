package effectlog

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// MaxSize bounds the JSON of each record of this package, in bytes.
const MaxSize = 64 << 10

// maxName bounds the names of types, adapters, policies and jobs, in bytes.
const maxName = 128

// Encode answers the record as JSON; it sets Schema. It fails with the rule that the
// record breaks.
func (c *Control) Encode() ([]byte, error) {
	c.Schema = ControlSchema
	return encode(ControlSchema, c, c.Validate)
}

// Encode answers the record as JSON; it sets Schema. It fails with the rule that the
// record breaks.
func (c *Command) Encode() ([]byte, error) {
	c.Schema = CommandSchema
	return encode(CommandSchema, c, c.Validate)
}

// Encode answers the record as JSON; it sets the Schemas. It fails with the rule that the
// record breaks.
func (e *Evidence) Encode() ([]byte, error) {
	e.Schema, e.Receipt.Schema = EvidenceSchema, effect.ReceiptSchema
	return encode(EvidenceSchema, e, e.Validate)
}

// Encode answers the record as JSON; it sets Schema. It fails with the rule that the
// record breaks.
func (d *Done) Encode() ([]byte, error) {
	d.Schema = DoneSchema
	return encode(DoneSchema, d, d.Validate)
}

// Foreign is a decoded record that stands in the journal beside the owner's commits:
// exactly one field is set.
type Foreign struct {
	Control  *Control
	Command  *Command
	Evidence *Evidence
}

// DecodeForeign reads what Encode of a Control, Command or Evidence wrote; members may
// stand in any order. It is strict: unknown, missing and repeated members, other forms of
// one value and broken rules are errors. No error repeats a value.
func DecodeForeign(data []byte) (Foreign, error) {
	var f Foreign
	schema, err := schemaOf(data)
	switch {
	case err != nil:
	case schema == ControlSchema:
		f.Control = new(Control)
		err = envelope.DecodeForm(schema, data, MaxSize, f.Control, f.Control.Validate)
	case schema == CommandSchema:
		f.Command = new(Command)
		err = envelope.DecodeForm(schema, data, MaxSize, f.Command, f.Command.Validate)
	case schema == EvidenceSchema:
		f.Evidence = new(Evidence)
		err = envelope.DecodeForm(schema, data, MaxSize, f.Evidence, f.Evidence.Validate)
	default:
		err = fmt.Errorf("schema %.64q: want %s, %s or %s", schema, ControlSchema, CommandSchema, EvidenceSchema)
	}
	if err != nil {
		return Foreign{}, err
	}
	return f, nil
}

// Owned is a decoded record of one of the owner's commits: exactly one field is set.
type Owned struct {
	Effect *effect.Record
	Done   *Done
}

// DecodeOwned reads what Encode of an effect.Record or a Done wrote, as strictly as
// DecodeForeign.
func DecodeOwned(data []byte) (Owned, error) {
	var o Owned
	schema, err := schemaOf(data)
	switch {
	case err != nil:
	case schema == effect.Schema:
		o.Effect, err = effect.Decode(data)
	case schema == DoneSchema:
		o.Done = new(Done)
		err = envelope.DecodeForm(schema, data, MaxSize, o.Done, o.Done.Validate)
	default:
		err = fmt.Errorf("schema %.64q: want %s or %s", schema, effect.Schema, DoneSchema)
	}
	if err != nil {
		return Owned{}, err
	}
	return o, nil
}

// schemaOf answers the schema member of a JSON object.
func schemaOf(data []byte) (string, error) {
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return "", fmt.Errorf("no JSON object with a schema: %w", envelope.WithoutValue(err))
	}
	return head.Schema, nil
}

func encode(schema string, v any, validate func() error) ([]byte, error) {
	if err := validate(); err != nil {
		return nil, err
	}
	data, err := envelope.EncodeForm(schema, v)
	if err == nil && len(data) > MaxSize {
		return nil, fmt.Errorf("%s: %d bytes, more than the %d that one may have", schema, len(data), MaxSize)
	}
	return data, err
}

// isToken tells whether s is made of A-Z a-z 0-9 _ - alone.
func isToken(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}) < 0
}

func checkName(member, name string) error {
	if name == "" || len(name) > maxName || !isToken(strings.ReplaceAll(name, ".", "-")) {
		return fmt.Errorf("%s: want a name of 1 to %d letters, digits, _ - or . alone", member, maxName)
	}
	return nil
}

// checkVersion checks "<name>@<version>".
func checkVersion(member, text string) error {
	name, number, found := strings.Cut(text, "@")
	digits := strings.Trim(number, "0123456789") == "" && number != "" && number[0] != '0' && len(number) <= 9
	if !found || !digits {
		return fmt.Errorf("%s: want <name>@<version>", member)
	}
	return checkName(member, name)
}

func checkText(member, text string, limit int) error {
	if text == "" || len(text) > limit || !utf8.ValidString(text) {
		return fmt.Errorf("%s: want 1 to %d bytes of UTF-8", member, limit)
	}
	return nil
}

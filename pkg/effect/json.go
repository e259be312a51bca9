package effect

import "github.com/tidemark-mesh/tidemark/pkg/envelope"

// MaxRecordSize bounds the JSON of a record or receipt, in bytes: 64 KiB of payload, each
// byte escaped in the longest way, and the rest.
const MaxRecordSize = 512 << 10

// Encode answers the record as JSON. It fails with the rule that the record breaks.
func (r *Record) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return envelope.EncodeForm(Schema, r)
}

// Decode reads what (*Record).Encode wrote; members may stand in any order. It is strict:
// unknown, missing and repeated members, other forms of one value and broken rules are
// errors; a null where a member may be left out counts as left out. No error repeats the
// payload, since that may hold what is nobody's business.
func Decode(data []byte) (*Record, error) {
	r := new(Record)
	if err := envelope.DecodeForm(Schema, data, MaxRecordSize, r, r.Validate); err != nil {
		return nil, err
	}
	return r, nil
}

// Encode answers the receipt as JSON. It fails with the rule that the receipt breaks.
func (r *Receipt) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return envelope.EncodeForm(ReceiptSchema, r)
}

// DecodeReceipt reads a receipt, as strictly as Decode. It does not verify signatures.
func DecodeReceipt(data []byte) (*Receipt, error) {
	r := new(Receipt)
	if err := envelope.DecodeForm(ReceiptSchema, data, MaxRecordSize, r, r.Validate); err != nil {
		return nil, err
	}
	return r, nil
}

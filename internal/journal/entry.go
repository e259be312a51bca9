package journal

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Entry is one message of a single-writer journal (windows): a claim, a control record,
// or records with their COMMIT. An entry with nothing in it is padding of a barrier and
// means nothing to a reader.
type Entry struct {
	Seq     uint64
	Time    time.Time
	Claim   *revision.Claim
	Control []byte
	Records [][]byte
	Commit  *revision.Commit
}

// Field numbers of Entry in journal.proto.
const (
	fieldClaim   = 1
	fieldControl = 2
	fieldRecords = 3
	fieldCommit  = 4
	wireBytes    = 2
)

// EncodeEntry writes the wire form (schema journal.proto): ascending fields, nothing for
// what is not there. It refuses entries that mix kinds.
func EncodeEntry(e *Entry) ([]byte, error) {
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("encode journal entry: %w", err)
	}
	size := 2048 + len(e.Control)
	for _, record := range e.Records {
		size += len(record) + 1 + binary.MaxVarintLen32
	}
	out := make([]byte, 0, size)
	if e.Claim != nil {
		out = appendField(out, fieldClaim, e.Claim.AppendJSON(nil))
	}
	if e.Control != nil {
		out = appendField(out, fieldControl, e.Control)
	}
	for _, record := range e.Records {
		out = appendField(out, fieldRecords, record)
	}
	if e.Commit != nil {
		out = appendField(out, fieldCommit, e.Commit.AppendJSON(nil))
	}
	return out, nil
}

func appendField(out []byte, number int, value []byte) []byte {
	out = append(out, byte(number<<3|wireBytes))
	out = binary.AppendUvarint(out, uint64(len(value)))
	return append(out, value...)
}

// DecodeEntry reads what EncodeEntry wrote; nothing else passes. Control and Records
// alias data.
func DecodeEntry(seq uint64, data []byte) (*Entry, error) {
	e := &Entry{Seq: seq}
	last := 0
	for rest := data; len(rest) > 0; {
		number, value, n, err := readField(rest)
		if err != nil {
			return nil, fmt.Errorf("journal entry at sequence %d: %w", seq, err)
		}
		if number < last || number == last && number != fieldRecords {
			return nil, fmt.Errorf("journal entry at sequence %d: field %d out of order", seq, number)
		}
		if err := e.set(number, value); err != nil {
			return nil, fmt.Errorf("journal entry at sequence %d: %w", seq, err)
		}
		last, rest = number, rest[n:]
	}
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("journal entry at sequence %d: %w", seq, err)
	}
	return e, nil
}

// readField reads one length-delimited field and answers how many bytes it took.
func readField(data []byte) (number int, value []byte, n int, err error) {
	tag := data[0]
	if tag&7 != wireBytes || tag>>3 < fieldClaim || tag>>3 > fieldCommit {
		return 0, nil, 0, fmt.Errorf("unknown field tag %#x", tag)
	}
	size, width := binary.Uvarint(data[1:])
	if width <= 0 || size > uint64(len(data)-1-width) {
		return 0, nil, 0, fmt.Errorf("field %d is cut off", tag>>3)
	}
	if width > 1 && data[width] == 0 {
		return 0, nil, 0, fmt.Errorf("length of field %d is not minimal", tag>>3)
	}
	end := 1 + width + int(size)
	return int(tag >> 3), data[1+width : end : end], end, nil
}

func (e *Entry) set(number int, value []byte) (err error) {
	switch number {
	case fieldClaim:
		e.Claim, err = revision.ParseClaim(value)
	case fieldControl:
		e.Control = value
	case fieldRecords:
		e.Records = append(e.Records, value)
	case fieldCommit:
		e.Commit, err = revision.ParseCommit(value)
	}
	return err
}

// check holds for every entry written and read: one kind, and no records without their COMMIT.
func (e *Entry) check() error {
	kinds := 0
	for _, there := range []bool{e.Claim != nil, e.Control != nil, e.Commit != nil} {
		if there {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return fmt.Errorf("more than one of claim, control and commit")
	case len(e.Records) > 0 && e.Commit == nil:
		return fmt.Errorf("%d records without a commit", len(e.Records))
	case e.Control != nil && len(e.Control) == 0:
		return fmt.Errorf("empty control record")
	}
	return nil
}

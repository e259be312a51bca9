package envelope

import (
	"encoding/json"
	"fmt"
	"time"
)

// QuarantineSchema names the form of a QuarantineRecord.
const QuarantineSchema = "quarantineRecord.v1"

// QuarantineRecord is one event that was refused at the door, kept so that it can be
// looked at and taken in later: one JSON message of the quarantine journal.
//
// A record that was published twice because an acknowledgement was lost has the same
// Writer and Number; readers count it once.
type QuarantineRecord struct {
	Schema string `json:"schema"`
	Writer string `json:"writer"`
	Number uint64 `json:"number"` // 1, 2, 3… per writer and business stream

	ID     string `json:"id,omitempty"` // of the event, when it could be read
	Reason string `json:"reason"`
	Rule   string `json:"rule"` // what exactly, in words

	Stream     string            `json:"stream"`
	Source     string            `json:"source"`
	Partition  uint32            `json:"partition"`
	Offset     uint64            `json:"offset,omitempty"` // source offset; none for unknown-partition
	Generation uint64            `json:"generation,omitempty"`
	Format     string            `json:"format"` // how Bytes are to be read: plain, cloudevent, binary, csv
	Header     map[string]string `json:"header,omitempty"`
	IDPath     string            `json:"idPath,omitempty"`
	Columns    []string          `json:"columns,omitempty"` // csv: the header row
	IngestTime time.Time         `json:"ingestTime"`
	Bytes      []byte            `json:"bytes"` // exactly as they came in; base64 in JSON

	// Digests of the two payloads of an id-conflict: the one that stands and this one.
	Digests []string `json:"digests,omitempty"`
}

// Encode answers the record as JSON.
func (r *QuarantineRecord) Encode() ([]byte, error) {
	r.Schema = QuarantineSchema
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("quarantine record of %s/%d at offset %d: %w", r.Source, r.Partition, r.Offset, err)
	}
	return data, nil
}

// DecodeQuarantine reads what Encode wrote.
func DecodeQuarantine(data []byte) (QuarantineRecord, error) {
	var r QuarantineRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("quarantine record: %w", err)
	}
	if r.Schema != QuarantineSchema {
		return r, fmt.Errorf("quarantine record has schema %q, this version reads %s", r.Schema, QuarantineSchema)
	}
	return r, nil
}

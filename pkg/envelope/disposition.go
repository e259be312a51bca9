package envelope

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// ReplayPartition is the source partition of events that were taken in again from
// quarantine. Their SourceOffset is the sequence of the quarantine record; no policy has
// this partition and no mark speaks of it, so it never moves a watermark.
const ReplayPartition uint32 = math.MaxUint32

// PartitionName answers a source partition as people read it: its number, or "replay".
func PartitionName(partition uint32) string {
	if partition == ReplayPartition {
		return "replay"
	}
	return strconv.FormatUint(uint64(partition), 10)
}

// DispositionSchema names the form of a QuarantineDisposition.
const DispositionSchema = "quarantineDisposition.v1"

// What an operator decided about a quarantined event.
const (
	Replayed  = "replayed"  // it stands in the events journal now
	Discarded = "discarded" // it will not be taken in
)

// QuarantineDisposition is an operator's decision about one quarantine record. It stands
// in the quarantine journal itself, on a subject of its own; the record stays as it is.
// Of several about one record the last counts.
type QuarantineDisposition struct {
	Schema   string    `json:"schema"`
	Sequence uint64    `json:"sequence"` // of the quarantine record
	Action   string    `json:"action"`   // replayed, discarded
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
	Job      string    `json:"job"` // the command that decided; all its items carry it
	At       time.Time `json:"at"`

	Source       string `json:"source,omitempty"`
	ID           string `json:"id,omitempty"`
	KeyPartition int    `json:"keyPartition"` // replayed: whose events journal has it; else 0
}

// Encode answers the disposition as JSON.
func (d *QuarantineDisposition) Encode() ([]byte, error) {
	d.Schema = DispositionSchema
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("disposition of quarantine record %d: %w", d.Sequence, err)
	}
	return data, nil
}

// DecodeDisposition reads what Encode wrote.
func DecodeDisposition(data []byte) (QuarantineDisposition, error) {
	var d QuarantineDisposition
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("quarantine disposition: %w", err)
	}
	if d.Schema != DispositionSchema {
		return d, fmt.Errorf("quarantine disposition has schema %q, this version reads %s", d.Schema, DispositionSchema)
	}
	return d, nil
}

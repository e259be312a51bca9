package journal

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// FenceRecord is one decoded message of a fence subject: exactly one field is set.
type FenceRecord struct {
	Claim   *revision.Claim
	Commit  *revision.Commit
	Control []byte // JSON
}

// EncodeFence writes {"claim":…}, {"commit":…} or {"control":…}.
func EncodeFence(r FenceRecord) ([]byte, error) {
	switch {
	case r.Claim != nil && r.Commit == nil && r.Control == nil:
		return append(r.Claim.AppendJSON([]byte(`{"claim":`)), '}'), nil
	case r.Commit != nil && r.Claim == nil && r.Control == nil:
		return append(r.Commit.AppendJSON([]byte(`{"commit":`)), '}'), nil
	case r.Control != nil && r.Claim == nil && r.Commit == nil:
		if !json.Valid(r.Control) {
			return nil, fmt.Errorf("encode fence record: control is not JSON")
		}
		return append(append([]byte(`{"control":`), r.Control...), '}'), nil
	}
	return nil, fmt.Errorf("encode fence record: exactly one of claim, commit and control must be set")
}

// DecodeFence reads what EncodeFence wrote.
func DecodeFence(seq uint64, data []byte) (FenceRecord, error) {
	var raw struct {
		Claim   json.RawMessage `json:"claim"`
		Commit  json.RawMessage `json:"commit"`
		Control json.RawMessage `json:"control"`
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&raw); err != nil {
		return FenceRecord{}, fmt.Errorf("fence record at sequence %d: %w", seq, err)
	}
	if decoder.InputOffset() != int64(len(bytes.TrimRight(data, " \t\r\n"))) {
		return FenceRecord{}, fmt.Errorf("fence record at sequence %d: trailing bytes", seq)
	}
	var r FenceRecord
	var err error
	switch {
	case raw.Claim != nil && raw.Commit == nil && raw.Control == nil:
		r.Claim, err = revision.ParseClaim(raw.Claim)
	case raw.Commit != nil && raw.Claim == nil && raw.Control == nil:
		r.Commit, err = revision.ParseCommit(raw.Commit)
	case raw.Control != nil && raw.Claim == nil && raw.Commit == nil:
		r.Control = raw.Control
	default:
		err = fmt.Errorf("not exactly one of claim, commit and control")
	}
	if err != nil {
		return FenceRecord{}, fmt.Errorf("fence record at sequence %d: %w", seq, err)
	}
	return r, nil
}

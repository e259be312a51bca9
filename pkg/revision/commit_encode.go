package revision

import (
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// Names of the JSON forms.
const (
	SchemaCommit = "commit.v1"
	SchemaClaim  = "claim.v1"
	SchemaAlias  = "alias.v1"
)

// AppendJSON appends the COMMIT as JSON in canonical form (keys sorted, minified, no
// nulls), so that Hash needs no second encoding. A stream's creation time is RFC 3339
// with nanoseconds: as a number it would not survive readers that hold numbers as floats.
func (c *Commit) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"counts":{`...)
	for i := range c.Counts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, c.Counts[i].Name), ':')
		dst = appendUint(dst, c.Counts[i].N)
	}
	dst = appendUint(append(dst, `},"epoch":`...), c.Epoch)
	dst = appendIDDigest(append(dst, `,"idDigest":`...), c.IDDigest)
	dst = append(dst, `,"inputs":[`...)
	for i := range c.Inputs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = c.Inputs[i].AppendJSON(dst)
	}
	dst = appendTime(append(dst, `],"openFrom":`...), c.OpenFrom)
	dst = appendDigest(append(dst, `,"previous":`...), c.Previous)
	dst = appendUint(append(dst, `,"records":`...), c.Records)
	dst = appendDigest(append(dst, `,"recordsDigest":`...), c.RecordsDigest)
	dst = appendTime(append(dst, `,"schema":"`+SchemaCommit+`","w":`...), c.W)
	dst = appendTime(append(dst, `,"wdata":`...), c.Wdata)
	return append(dst, '}')
}

// AppendJSON appends the position as canonical JSON.
func (p *InputPosition) AppendJSON(dst []byte) []byte {
	dst = time.Unix(0, p.Created).UTC().AppendFormat(append(dst, `{"created":"`...), time.RFC3339Nano)
	dst = appendUint(append(dst, `","index":`...), uint64(p.Index))
	dst = appendUint(append(dst, `,"outputs":`...), uint64(p.Outputs))
	dst = appendUint(append(dst, `,"seq":`...), p.Seq)
	dst = appendString(append(dst, `,"stream":`...), p.Stream)
	return append(dst, '}')
}

// AppendJSON appends the claim as canonical JSON.
func (c *Claim) AppendJSON(dst []byte) []byte {
	dst = appendInt(append(dst, `{"coreVersion":`...), int64(c.CoreVersion))
	dst = appendUint(append(dst, `,"epoch":`...), c.Epoch)
	dst = appendString(append(dst, `,"owner":`...), c.Owner)
	return append(dst, `,"schema":"`+SchemaClaim+`"}`...)
}

// AppendJSON appends the alias as canonical JSON. Without a candidate or a switch under
// way those members are left out.
func (a *Alias) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	if a.Candidate != 0 {
		dst = appendInt(append(dst, `"candidate":`...), int64(a.Candidate))
		dst = append(appendInt(append(dst, `,"candidatePercent":`...), int64(a.CandidatePercent)), ',')
	}
	dst = appendInt(append(dst, `"canonical":`...), int64(a.Canonical))
	dst = appendUint(append(dst, `,"epoch":`...), a.Epoch)
	dst = appendString(append(dst, `,"job":`...), a.Job)
	dst = append(dst, `,"schema":"`+SchemaAlias+`"`...)
	if a.Switching != 0 {
		dst = append(appendInt(append(dst, `,"switching":{"to":`...), int64(a.Switching)), '}')
	}
	return append(dst, '}')
}

// Less orders positions of one journal.
func (p InputPosition) Less(q InputPosition) bool {
	if p.Seq != q.Seq {
		return p.Seq < q.Seq
	}
	if p.Index != q.Index {
		return p.Index < q.Index
	}
	return p.Outputs < q.Outputs
}

// NewCommit answers a COMMIT that says nothing yet: watermarks at minus infinity, no
// session open.
func NewCommit() Commit {
	return Commit{W: envelope.MinEventTime, Wdata: envelope.MinEventTime, OpenFrom: envelope.MaxEventTime}
}

package revision

import "github.com/tidemark-mesh/tidemark/pkg/envelope"

// InputPosition says how far into an input journal a COMMIT reaches: everything before
// (Seq, Index) is taken in, and of the record at (Seq, Index) the first Outputs outputs
// are written. Index counts records inside a message from 0. Seq is the message in which
// the next record stands, or 1 at the start of a journal.
type InputPosition struct {
	Stream  string // JetStream stream name
	Created int64  // the stream's creation time in Unix nanoseconds: its identity
	Seq     uint64
	Index   uint32
	Outputs uint32
}

// Count is one named number of a COMMIT.
type Count struct {
	Name string
	N    uint64
}

// Commit closes a commit of a journal (schema commit.v1). Numbers and digests in it are
// cumulative since the journal's start.
type Commit struct {
	Epoch         uint64
	Inputs        []InputPosition
	W             envelope.EventTime
	Wdata         envelope.EventTime
	OpenFrom      envelope.EventTime // least start of an unfired session; MaxEventTime where there is none
	Counts        []Count            // sorted by name
	IDDigest      [16]byte           // sum over applied members
	Records       uint64             // number of records so far
	RecordsDigest Digest             // chain over all records: d(0)=0, d(i)=SHA-256(d(i-1) + record i)
	Previous      Digest             // Hash of the previous COMMIT; zero for the first
}

// Claim is a would-be owner's entry into a journal (schema claim.v1).
type Claim struct {
	Epoch       uint64
	Owner       string
	CoreVersion int
}

// Alias says which generation of a job readers see (schema alias.v1).
type Alias struct {
	Job              string
	Canonical        int
	Candidate        int // 0 = none
	CandidatePercent int
	Epoch            uint64
	Switching        int // 0 = no switch under way, else the generation switched to
}

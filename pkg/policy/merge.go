package policy

// A merge of sessions is published as groups that each fit one message: rows that go, and
// the row that takes their place.
const (
	maxMergeRows  = 400
	maxMergeBytes = 768 << 10 // of the rows that go
	// mergeRowBytes bounds what a row that goes costs whatever the policy says: a key of
	// 256 bytes, digests, ids, numbers, and its name in the row that comes.
	mergeRowBytes  = 640
	mergeResult    = 56 // bounds a change of a result beside its name: 39 digits
	mergePartition = 32 // bounds the offsets of a source partition beside the source's name
	maxRanged      = 16 // source partitions above which offsets are left out
)

// MergeLimit answers how many sessions one group of a policy supersedes at most: 400, or
// fewer when its names are so many or so long that 400 would not fit one message. A
// larger merge is published as a chain.
func (p *StreamTimePolicy) MergeLimit() int {
	row := mergeRowBytes
	for _, a := range p.Aggregates {
		row += len(a.Name) + mergeResult
	}
	partitions, offsets := 0, 0
	for _, s := range p.Sources {
		partitions += s.Partitions
		offsets += s.Partitions * (len(s.Name) + mergePartition)
	}
	if partitions <= maxRanged {
		row += offsets
	}
	return max(2, min(maxMergeRows, maxMergeBytes/row))
}

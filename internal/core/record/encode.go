package record

import (
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// AppendProposal appends r as a record. digest is r.ComputeDigest(), taken when all of r
// was known. r must be valid (revision.Validate): other enumerations than the known ones
// have no encoding.
func AppendProposal(dst []byte, r *revision.Revision, digest revision.Digest) []byte {
	dst = append(dst, byte(KindProposal))
	dst = appendText(dst, proposalKey, r.Key)
	dst = appendSint(dst, proposalStart, int64(r.Window.Start))
	dst = appendSint(dst, proposalEnd, int64(r.Window.End))
	dst = appendText(dst, proposalResultID, r.ResultID)
	dst = appendUint(dst, proposalOp, opNumber(r.Op))
	dst = appendUint(dst, proposalRevision, r.Revision)
	if p := r.Predecessor; p != nil {
		dst = appendUint(dst, proposalPredecessor, p.Revision)
		dst = appendBytes(dst, proposalPredecessorDigest, p.Digest[:])
	}
	dst = appendUint(dst, proposalState, stateNumber(r.State))
	dst = appendUint(dst, proposalFiring, firingNumber(r.Firing))
	dst = appendUint(dst, proposalOrigin, uint64(r.Origin))
	dst = appendBool(dst, proposalValueChanged, r.ValueChanged)
	dst = appendFields(dst, proposalValue, r.Value)
	dst = appendFields(dst, proposalDelta, r.Delta)
	dst = appendInputs(dst, &r.Inputs)
	dst = appendSint(dst, proposalWatermarkAt, int64(r.Watermark.At))
	dst = appendSint(dst, proposalWatermarkData, int64(r.Watermark.Data))
	dst = appendText(dst, proposalCause, r.Cause)
	for i := range r.Supersedes {
		s := &r.Supersedes[i]
		dst = appendMessage(dst, proposalSupersedes, func(dst []byte) []byte {
			return appendUint(appendText(dst, 1, s.ProjectionID), 2, s.Revision)
		})
	}
	dst = appendText(dst, proposalSupersededBy, r.SupersededBy)
	return appendBytes(dst, proposalDigest, digest[:])
}

func appendFields(dst []byte, number int, fields []revision.Field) []byte {
	for i := range fields {
		f := &fields[i]
		dst = appendMessage(dst, number, func(dst []byte) []byte {
			return appendBool(appendText(appendText(dst, 1, f.Name), 2, f.Text), 3, f.Quoted)
		})
	}
	return dst
}

func appendInputs(dst []byte, in *revision.Inputs) []byte {
	dst = appendUint(dst, proposalPartition, uint64(uint32(in.Partition)))
	dst = appendUint(dst, proposalFirst, in.First)
	dst = appendUint(dst, proposalLast, in.Last)
	dst = appendUint(dst, proposalEvents, in.Events)
	dst = appendBytes(dst, proposalIDDigest, in.IDDigest[:])
	for i := range in.Offsets {
		o := &in.Offsets[i]
		dst = appendMessage(dst, proposalOffsets, func(dst []byte) []byte {
			dst = appendUint(appendText(dst, 1, o.Source), 2, uint64(o.Partition))
			return appendUint(appendUint(dst, 3, o.First), 4, o.Last)
		})
	}
	return dst
}

// AppendLate appends l as a record.
func AppendLate(dst []byte, l *Late) []byte {
	dst = appendEvent(append(dst, byte(KindLate)), &l.Event)
	dst = appendSint(dst, lateStart, int64(l.Window.Start))
	dst = appendSint(dst, lateEnd, int64(l.Window.End))
	dst = appendSint(dst, lateW, int64(l.W))
	return appendBool(dst, lateNone, l.None)
}

// AppendConflict appends c as a record.
func AppendConflict(dst []byte, c *Conflict) []byte {
	dst = appendEvent(append(dst, byte(KindConflict)), &c.Event)
	dst = appendText(dst, conflictRule, c.Rule)
	return appendBytes(dst, conflictFirst, c.First[:])
}

// AppendRefused appends r as a record.
func AppendRefused(dst []byte, r *Refused) []byte {
	dst = appendText(append(dst, byte(KindRefused)), refusedKey, r.Key)
	dst = appendUint(dst, refusedEpoch, r.Epoch)
	dst = appendUint(dst, refusedAsOfSeq, r.AsOf.Seq)
	dst = appendUint(dst, refusedAsOfIndex, uint64(r.AsOf.Index))
	return appendText(dst, refusedWhy, r.Why)
}

func appendEvent(dst []byte, e *EventRef) []byte {
	return appendMessage(dst, recordEvent, func(dst []byte) []byte {
		dst = appendText(dst, eventSource, e.Source)
		dst = appendText(dst, eventID, e.ID)
		dst = appendText(dst, eventKey, e.Key)
		dst = appendUint(dst, eventPartition, uint64(e.SourcePartition))
		dst = appendUint(dst, eventOffset, e.SourceOffset)
		dst = appendSint(dst, eventTime, int64(e.EventTime))
		dst = appendBytes(dst, eventDigest, e.Digest[:])
		dst = appendBool(dst, eventRetract, e.Op == envelope.Retract)
		dst = appendText(dst, eventWithdraws, e.Withdraws)
		dst = appendUint(dst, eventSeq, e.Place.Seq)
		return appendUint(dst, eventIndex, uint64(e.Place.Index))
	})
}

package record

import (
	"errors"
	"fmt"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// KindOf answers the kind of an encoded record, or 0 for none.
func KindOf(data []byte) Kind {
	if len(data) == 0 || Kind(data[0]) > KindRefused {
		return 0
	}
	return Kind(data[0])
}

// Decode reads a record. The answer owns its memory; its strings share one copy of data.
func Decode(data []byte) (Record, error) {
	var rec Record
	if len(data) == 0 {
		return rec, errors.New("record: empty")
	}
	r := &reader{text: string(data), pos: 1}
	var what string
	switch kind := Kind(data[0]); kind {
	case KindProposal:
		what, rec.Proposal = "proposal", new(revision.Revision)
		rec.Digest = r.proposal(rec.Proposal)
	case KindLate:
		what, rec.Late = "late", new(Late)
		r.late(rec.Late)
	case KindConflict:
		what, rec.Conflict = "conflict", new(Conflict)
		r.conflict(rec.Conflict)
	case KindRefused:
		what, rec.Refused = "refused", new(Refused)
		r.refused(rec.Refused)
	default:
		return Record{}, fmt.Errorf("record: kind %d is unknown to this version", kind)
	}
	if r.err != nil {
		return Record{}, fmt.Errorf("record: %s at byte %d of %d: %w", what, r.pos, len(data), r.err)
	}
	return rec, nil
}

func (r *reader) proposal(rev *revision.Revision) (digest revision.Digest) {
	var predecessor revision.Predecessor
	for r.next() {
		switch r.field {
		case proposalKey:
			rev.Key = r.string()
		case proposalStart:
			rev.Window.Start = envelope.EventTime(r.sint())
		case proposalEnd:
			rev.Window.End = envelope.EventTime(r.sint())
		case proposalResultID:
			rev.ResultID = r.string()
		case proposalOp:
			rev.Op = enum(r, opByNumber)
		case proposalRevision:
			rev.Revision = r.uint()
		case proposalPredecessor:
			predecessor.Revision = r.uint()
			rev.Predecessor = &predecessor
		case proposalPredecessorDigest:
			r.fill(predecessor.Digest[:])
			rev.Predecessor = &predecessor
		case proposalState:
			rev.State = enum(r, stateByNumber)
		case proposalFiring:
			rev.Firing = enum(r, firingByNumber)
		case proposalOrigin:
			rev.Origin = r.origin()
		case proposalValueChanged:
			rev.ValueChanged = r.bool()
		case proposalValue:
			rev.Value = r.resultField(rev.Value)
		case proposalDelta:
			rev.Delta = r.resultField(rev.Delta)
		case proposalWatermarkAt:
			rev.Watermark.At = envelope.EventTime(r.sint())
		case proposalWatermarkData:
			rev.Watermark.Data = envelope.EventTime(r.sint())
		case proposalCause:
			rev.Cause = r.string()
		case proposalSupersedes:
			rev.Supersedes = append(rev.Supersedes, r.supersession())
		case proposalSupersededBy:
			rev.SupersededBy = r.string()
		case proposalDigest:
			r.fill(digest[:])
		default:
			r.inputs(&rev.Inputs)
		}
	}
	if r.err == nil && digest.IsZero() {
		r.err = errors.New("the proposal carries no digest")
	}
	return digest
}

func (r *reader) inputs(in *revision.Inputs) {
	switch r.field {
	case proposalPartition:
		in.Partition = int(int32(r.uint32()))
	case proposalFirst:
		in.First = r.uint()
	case proposalLast:
		in.Last = r.uint()
	case proposalEvents:
		in.Events = r.uint()
	case proposalIDDigest:
		r.fill(in.IDDigest[:])
	case proposalOffsets:
		in.Offsets = append(in.Offsets, r.offsets())
	default:
		r.unknown()
	}
}

func enum[T ~string](r *reader, byNumber func(uint64) T) T {
	value := byNumber(r.uint())
	if value == "" && r.err == nil {
		r.err = fmt.Errorf("field %d: %d is unknown", r.field, r.n)
	}
	return value
}

func (r *reader) origin() envelope.Origin {
	n := r.uint()
	if n > uint64(envelope.OriginRepair) && r.err == nil {
		r.err = fmt.Errorf("field %d: %d is unknown", r.field, n)
	}
	return envelope.Origin(n)
}

func (r *reader) resultField(list []revision.Field) []revision.Field {
	var f revision.Field
	r.message(func(in *reader) {
		switch in.field {
		case 1:
			f.Name = in.string()
		case 2:
			f.Text = in.string()
		case 3:
			f.Quoted = in.bool()
		default:
			in.unknown()
		}
	})
	if list == nil {
		list = make([]revision.Field, 0, 4)
	}
	return append(list, f)
}

func (r *reader) offsets() (o revision.OffsetRange) {
	r.message(func(in *reader) {
		switch in.field {
		case 1:
			o.Source = in.string()
		case 2:
			o.Partition = in.uint32()
		case 3:
			o.First = in.uint()
		case 4:
			o.Last = in.uint()
		default:
			in.unknown()
		}
	})
	return o
}

func (r *reader) supersession() (s revision.Supersession) {
	r.message(func(in *reader) {
		switch in.field {
		case 1:
			s.ProjectionID = in.string()
		case 2:
			s.Revision = in.uint()
		default:
			in.unknown()
		}
	})
	return s
}

func (r *reader) late(l *Late) {
	for r.next() {
		switch r.field {
		case recordEvent:
			r.event(&l.Event)
		case lateStart:
			l.Window.Start = envelope.EventTime(r.sint())
		case lateEnd:
			l.Window.End = envelope.EventTime(r.sint())
		case lateW:
			l.W = envelope.EventTime(r.sint())
		case lateNone:
			l.None = r.bool()
		default:
			r.unknown()
		}
	}
}

func (r *reader) conflict(c *Conflict) {
	for r.next() {
		switch r.field {
		case recordEvent:
			r.event(&c.Event)
		case conflictRule:
			c.Rule = r.string()
		case conflictFirst:
			r.fill(c.First[:])
		default:
			r.unknown()
		}
	}
}

func (r *reader) refused(f *Refused) {
	for r.next() {
		switch r.field {
		case refusedKey:
			f.Key = r.string()
		case refusedEpoch:
			f.Epoch = r.uint()
		case refusedAsOfSeq:
			f.AsOf.Seq = r.uint()
		case refusedAsOfIndex:
			f.AsOf.Index = r.uint32()
		case refusedWhy:
			f.Why = r.string()
		default:
			r.unknown()
		}
	}
}

func (r *reader) event(e *EventRef) {
	r.message(func(in *reader) {
		switch in.field {
		case eventSource:
			e.Source = in.string()
		case eventID:
			e.ID = in.string()
		case eventKey:
			e.Key = in.string()
		case eventPartition:
			e.SourcePartition = in.uint32()
		case eventOffset:
			e.SourceOffset = in.uint()
		case eventTime:
			e.EventTime = envelope.EventTime(in.sint())
		case eventDigest:
			in.fill(e.Digest[:])
		case eventRetract:
			if in.bool() {
				e.Op = envelope.Retract
			}
		case eventWithdraws:
			e.Withdraws = in.string()
		case eventSeq:
			e.Place.Seq = in.uint()
		case eventIndex:
			e.Place.Index = in.uint32()
		default:
			in.unknown()
		}
	})
}

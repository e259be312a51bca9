package revision

import "strconv"

// Schema names the JSON form of a revision.
const Schema = "revision.v1"

// AppendJSON appends the public JSON of the revision. Keys stand in the order of the
// design's example; what a revision does not have is left out (no nulls, ADR 0001).
func (r *Revision) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"schema":"`+Schema+`","stream":`...)
	dst = appendString(dst, r.Stream)
	dst = appendString(append(dst, `,"job":`...), r.Job)
	dst = appendString(append(dst, `,"policyGeneration":`...), r.PolicyGeneration)
	dst = appendString(append(dst, `,"policyDigest":`...), r.PolicyDigest)
	dst = appendString(append(dst, `,"key":`...), r.Key)
	dst = appendTime(append(dst, `,"window":{"start":`...), r.Window.Start)
	dst = appendTime(append(dst, `,"end":`...), r.Window.End)
	dst = appendString(append(dst, `},"logicalWindowId":`...), r.LogicalWindowID)
	dst = appendString(append(dst, `,"projectionId":`...), r.ProjectionID)
	dst = appendOptional(dst, `,"resultId":`, r.ResultID)
	dst = appendString(append(dst, `,"op":`...), string(r.Op))
	dst = appendUint(append(dst, `,"revision":`...), r.Revision)
	if p := r.Predecessor; p != nil {
		dst = appendUint(append(dst, `,"predecessor":{"revision":`...), p.Revision)
		dst = append(appendDigest(append(dst, `,"digest":`...), p.Digest), '}')
	}
	dst = appendString(append(dst, `,"state":`...), string(r.State))
	dst = appendString(append(dst, `,"firing":`...), string(r.Firing))
	dst = appendString(append(dst, `,"origin":`...), originText(r.Origin))
	dst = strconv.AppendBool(append(dst, `,"valueChanged":`...), r.ValueChanged)
	dst = appendFields(append(dst, `,"value":`...), r.Value)
	dst = appendFields(append(dst, `,"delta":`...), r.Delta)
	dst = r.Inputs.appendJSON(append(dst, `,"inputs":`...))
	dst = appendDigest(append(dst, `,"aggregateDigest":`...), r.AggregateDigest)
	dst = appendTime(append(dst, `,"watermark":{"at":`...), r.Watermark.At)
	dst = appendTime(append(dst, `,"data":`...), r.Watermark.Data)
	dst = appendString(append(dst, `},"cause":`...), r.Cause)
	dst = appendSupersessions(append(dst, `,"supersedes":`...), r.Supersedes)
	dst = appendOptional(dst, `,"supersededBy":`, r.SupersededBy)
	dst = append(appendUint(append(dst, `,"attempt":{"epoch":`...), r.Epoch), '}')
	dst = appendOptional(dst, `,"traceparent":`, r.TraceParent)
	return append(dst, '}')
}

func (in *Inputs) appendJSON(dst []byte) []byte {
	dst = appendInt(append(dst, `{"journal":{"partition":`...), int64(in.Partition))
	dst = appendUint(append(dst, `,"first":`...), in.First)
	dst = appendUint(append(dst, `,"last":`...), in.Last)
	dst = appendUint(append(dst, `},"events":`...), in.Events)
	dst = appendIDDigest(append(dst, `,"idDigest":`...), in.IDDigest)
	if len(in.Offsets) > 0 {
		dst = append(dst, `,"offsets":[`...)
		for i := range in.Offsets {
			o := &in.Offsets[i]
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendString(append(dst, `{"source":`...), o.Source)
			dst = appendUint(append(dst, `,"partition":`...), uint64(o.Partition))
			dst = appendUint(append(dst, `,"first":`...), o.First)
			dst = append(appendUint(append(dst, `,"last":`...), o.Last), '}')
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// AppendCanonical appends what the digest covers: minified, keys sorted bytewise, no
// nulls, without attempt, traceparent and watermark. It is AppendJSON laid out again by
// hand, since a generic canonicaliser would parse and sort each; a test compares both.
func (r *Revision) AppendCanonical(dst []byte) []byte {
	dst = appendDigest(append(dst, `{"aggregateDigest":`...), r.AggregateDigest)
	dst = appendString(append(dst, `,"cause":`...), r.Cause)
	dst = appendFields(append(dst, `,"delta":`...), r.Delta)
	dst = appendString(append(dst, `,"firing":`...), string(r.Firing))
	dst = r.Inputs.appendCanonical(append(dst, `,"inputs":`...))
	dst = appendString(append(dst, `,"job":`...), r.Job)
	dst = appendString(append(dst, `,"key":`...), r.Key)
	dst = appendString(append(dst, `,"logicalWindowId":`...), r.LogicalWindowID)
	dst = appendString(append(dst, `,"op":`...), string(r.Op))
	dst = appendString(append(dst, `,"origin":`...), originText(r.Origin))
	dst = appendString(append(dst, `,"policyDigest":`...), r.PolicyDigest)
	dst = appendString(append(dst, `,"policyGeneration":`...), r.PolicyGeneration)
	if p := r.Predecessor; p != nil {
		dst = appendDigest(append(dst, `,"predecessor":{"digest":`...), p.Digest)
		dst = append(appendUint(append(dst, `,"revision":`...), p.Revision), '}')
	}
	dst = appendString(append(dst, `,"projectionId":`...), r.ProjectionID)
	dst = appendOptional(dst, `,"resultId":`, r.ResultID)
	dst = appendUint(append(dst, `,"revision":`...), r.Revision)
	dst = appendString(append(dst, `,"schema":"`+Schema+`","state":`...), string(r.State))
	dst = appendString(append(dst, `,"stream":`...), r.Stream)
	dst = appendOptional(dst, `,"supersededBy":`, r.SupersededBy)
	dst = appendSupersessions(append(dst, `,"supersedes":`...), r.Supersedes)
	dst = appendFields(append(dst, `,"value":`...), r.Value)
	dst = strconv.AppendBool(append(dst, `,"valueChanged":`...), r.ValueChanged)
	dst = appendTime(append(dst, `,"window":{"end":`...), r.Window.End)
	dst = appendTime(append(dst, `,"start":`...), r.Window.Start)
	return append(dst, '}', '}')
}

func (in *Inputs) appendCanonical(dst []byte) []byte {
	dst = appendUint(append(dst, `{"events":`...), in.Events)
	dst = appendIDDigest(append(dst, `,"idDigest":`...), in.IDDigest)
	dst = appendUint(append(dst, `,"journal":{"first":`...), in.First)
	dst = appendUint(append(dst, `,"last":`...), in.Last)
	dst = append(appendInt(append(dst, `,"partition":`...), int64(in.Partition)), '}')
	if len(in.Offsets) > 0 {
		dst = append(dst, `,"offsets":[`...)
		for i := range in.Offsets {
			o := &in.Offsets[i]
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendUint(append(dst, `{"first":`...), o.First)
			dst = appendUint(append(dst, `,"last":`...), o.Last)
			dst = appendUint(append(dst, `,"partition":`...), uint64(o.Partition))
			dst = append(appendString(append(dst, `,"source":`...), o.Source), '}')
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// appendSupersessions writes the list; its keys are in canonical order.
func appendSupersessions(dst []byte, list []Supersession) []byte {
	dst = append(dst, '[')
	for i := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(append(dst, `{"projectionId":`...), list[i].ProjectionID)
		dst = append(appendUint(append(dst, `,"revision":`...), list[i].Revision), '}')
	}
	return append(dst, ']')
}

// appendOptional writes a member only if there is something to say.
func appendOptional(dst []byte, key, text string) []byte {
	if text == "" {
		return dst
	}
	return appendString(append(dst, key...), text)
}

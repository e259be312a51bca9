package revision

import "github.com/tidemark-mesh/tidemark/pkg/envelope"

// PreviewSchema names the JSON form of a preview.
const PreviewSchema = "early.v1"

// Preview is what a window holds before the watermark has reached its end. It is no
// revision: nothing accepts it, numbers it or corrects it, and it may be lost.
type Preview struct {
	Stream           string
	Job              string
	PolicyGeneration string // job@generation
	Key              string
	Window           Window
	LogicalWindowID  string // as in the revision to come, unless a session grows until then
	ProjectionID     string
	Value            []Field // sorted by name
	Events           uint64
	Watermark        envelope.EventTime
	IngestNow        envelope.IngestTime // the highest among the marks so far
}

// AppendJSON appends the preview as JSON (schema early.v1).
func (p *Preview) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"schema":"`+PreviewSchema+`","stream":`...)
	dst = appendString(dst, p.Stream)
	dst = appendString(append(dst, `,"job":`...), p.Job)
	dst = appendString(append(dst, `,"policyGeneration":`...), p.PolicyGeneration)
	dst = appendString(append(dst, `,"key":`...), p.Key)
	dst = appendTime(append(dst, `,"window":{"start":`...), p.Window.Start)
	dst = appendTime(append(dst, `,"end":`...), p.Window.End)
	dst = appendString(append(dst, `},"logicalWindowId":`...), p.LogicalWindowID)
	dst = appendString(append(dst, `,"projectionId":`...), p.ProjectionID)
	dst = appendFields(append(dst, `,"value":`...), p.Value)
	dst = appendUint(append(dst, `,"events":`...), p.Events)
	dst = appendTime(append(dst, `,"watermark":`...), p.Watermark)
	dst = appendTime(append(dst, `,"ingestNow":`...), envelope.EventTime(p.IngestNow))
	return append(dst, '}')
}

package revision

import "github.com/tidemark-mesh/tidemark/pkg/envelope"

// ParseJSON reads what AppendJSON wrote; members may stand in any order. It is strict
// (unknown, missing and repeated members are errors), because a revision's digest covers
// all of it. A null where a member may be left out counts as left out. ParseJSON checks
// the form; Validate checks the rules. The strings of the answer share one copy of data.
func ParseJSON(data []byte) (*Revision, error) {
	c, r := newCursor(Schema, data), new(Revision)
	required := []string{
		"schema", "stream", "job", "policyGeneration", "policyDigest", "key", "window", "logicalWindowId",
		"projectionId", "op", "revision", "state", "firing", "origin", "valueChanged", "value", "delta",
		"inputs", "aggregateDigest", "watermark", "cause", "supersedes", "attempt",
	}
	c.object(required, func(name string) bool { return r.readName(c, name) || r.readResult(c, name) })
	if err := c.end(); err != nil {
		return nil, err
	}
	return r, nil
}

// readName reads the members that name the revision: what it is of and who made it.
func (r *Revision) readName(c *cursor, name string) bool {
	switch name {
	case "schema":
		c.schema(Schema)
	case "stream":
		r.Stream = c.string()
	case "job":
		r.Job = c.string()
	case "policyGeneration":
		r.PolicyGeneration = c.string()
	case "policyDigest":
		r.PolicyDigest = c.string()
	case "key":
		r.Key = c.string()
	case "window":
		r.Window = readWindow(c)
	case "logicalWindowId":
		r.LogicalWindowID = c.string()
	case "projectionId":
		r.ProjectionID = c.string()
	case "resultId":
		r.ResultID = c.optional()
	case "revision":
		r.Revision = c.uint(64)
	case "predecessor":
		if !c.null() {
			r.Predecessor = readPredecessor(c)
		}
	case "attempt":
		c.object([]string{"epoch"}, func(name string) bool {
			if name == "epoch" {
				r.Epoch = c.uint(64)
			}
			return name == "epoch"
		})
	case "traceparent":
		r.TraceParent = c.optional()
	default:
		return false
	}
	return true
}

// readResult reads the members that say what the result is and why.
func (r *Revision) readResult(c *cursor, name string) bool {
	switch name {
	case "op":
		r.Op = Op(c.string())
	case "state":
		r.State = OutputState(c.string())
	case "firing":
		r.Firing = Firing(c.string())
	case "origin":
		r.Origin = readOrigin(c)
	case "valueChanged":
		r.ValueChanged = c.bool()
	case "value":
		r.Value = c.fields()
	case "delta":
		r.Delta = c.fields()
	case "inputs":
		r.Inputs = readInputs(c)
	case "aggregateDigest":
		r.AggregateDigest = c.digest()
	case "watermark":
		r.Watermark = readWatermark(c)
	case "cause":
		r.Cause = c.string()
	case "supersedes":
		c.array(func() { r.Supersedes = append(r.Supersedes, readSupersession(c)) })
	case "supersededBy":
		r.SupersededBy = c.optional()
	default:
		return false
	}
	return true
}

func readWindow(c *cursor) (w Window) {
	c.object([]string{"start", "end"}, func(name string) bool {
		switch name {
		case "start":
			w.Start = c.time()
		case "end":
			w.End = c.time()
		default:
			return false
		}
		return true
	})
	return w
}

func readPredecessor(c *cursor) *Predecessor {
	p := new(Predecessor)
	c.object([]string{"revision", "digest"}, func(name string) bool {
		switch name {
		case "revision":
			p.Revision = c.uint(64)
		case "digest":
			p.Digest = c.digest()
		default:
			return false
		}
		return true
	})
	return p
}

func readOrigin(c *cursor) envelope.Origin {
	text := c.string()
	origin, ok := parseOrigin(text)
	if c.err == nil && !ok {
		c.fail("%q is no origin", text)
	}
	return origin
}

func readInputs(c *cursor) (in Inputs) {
	c.object([]string{"journal", "events", "idDigest"}, func(name string) bool {
		switch name {
		case "journal":
			readJournalRange(c, &in)
		case "events":
			in.Events = c.uint(64)
		case "idDigest":
			in.IDDigest = c.idDigest()
		case "offsets":
			c.array(func() { in.Offsets = append(in.Offsets, readOffsets(c)) })
		default:
			return false
		}
		return true
	})
	return in
}

func readJournalRange(c *cursor, in *Inputs) {
	c.object([]string{"partition", "first", "last"}, func(name string) bool {
		switch name {
		case "partition":
			in.Partition = c.int()
		case "first":
			in.First = c.uint(64)
		case "last":
			in.Last = c.uint(64)
		default:
			return false
		}
		return true
	})
}

func readOffsets(c *cursor) (o OffsetRange) {
	c.object([]string{"source", "partition", "first", "last"}, func(name string) bool {
		switch name {
		case "source":
			o.Source = c.string()
		case "partition":
			o.Partition = uint32(c.uint(32))
		case "first":
			o.First = c.uint(64)
		case "last":
			o.Last = c.uint(64)
		default:
			return false
		}
		return true
	})
	return o
}

func readWatermark(c *cursor) (w Watermark) {
	c.object([]string{"at", "data"}, func(name string) bool {
		switch name {
		case "at":
			w.At = c.time()
		case "data":
			w.Data = c.time()
		default:
			return false
		}
		return true
	})
	return w
}

func readSupersession(c *cursor) (s Supersession) {
	c.object([]string{"projectionId", "revision"}, func(name string) bool {
		switch name {
		case "projectionId":
			s.ProjectionID = c.string()
		case "revision":
			s.Revision = c.uint(64)
		default:
			return false
		}
		return true
	})
	return s
}

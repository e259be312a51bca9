package ingest

// maxAhead bounds the requests of one file that are remembered before those between.
const maxAhead = 1024

// resume follows one file line by line, so that an interrupted send can go on. The line
// never runs over lines that were not taken in, in whatever order requests arrive.
type resume struct {
	token string
	upto  uint64
	ahead map[uint64]uint64 // From of a request to its To, where the line is not there yet
}

// resumePoint is what a checkpoint keeps.
type resumePoint struct {
	Token string `json:"token"`
	Line  uint64 `json:"line"`
}

// take notes the lines of a request that was taken in.
func (r *resume) take(req *Request) {
	if req.Resume == "" {
		return
	}
	if r.token != req.Resume {
		*r = resume{token: req.Resume}
	}
	if req.From > r.upto {
		if r.ahead == nil {
			r.ahead = make(map[uint64]uint64)
		}
		if len(r.ahead) < maxAhead {
			r.ahead[req.From] = max(req.To, r.ahead[req.From])
		}
		return
	}
	r.upto = max(r.upto, req.To)
	for {
		to, found := r.ahead[r.upto]
		if !found {
			return
		}
		delete(r.ahead, r.upto)
		r.upto = max(r.upto, to)
	}
}

// line answers the point as it is now, nil when no file is under way.
func (r *resume) line() *resumePoint {
	if r.token == "" {
		return nil
	}
	return &resumePoint{Token: r.token, Line: r.upto}
}

func (r *resumePoint) equal(other *resumePoint) bool {
	if r == nil || other == nil {
		return r == other
	}
	return *r == *other
}

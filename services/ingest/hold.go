package ingest

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
)

// maxHold bounds one request to hold: whoever needs longer asks again, and one that died
// holds nothing up for long.
const maxHold = 30 * time.Second

// holdRequest asks for a time without marks; 0 ends it.
type holdRequest struct {
	HoldMs int64 `json:"holdMs"`
}

// holdReply says that from now on no mark is written for as long.
type holdReply struct {
	Instance string `json:"instance"`
	Writer   string `json:"writer"`
	HoldMs   int64  `json:"holdMs"`
}

// serveHold lets no cut begin for a while. Events go on; results wait.
func (s *Service) serveHold(st *stream, m *nats.Msg) {
	var ask holdRequest
	if err := json.Unmarshal(m.Data, &ask); err != nil || ask.HoldMs < 0 {
		s.answer(m, nil, badRequest(`send {"holdMs":10000}`, "the hold request cannot be read"))
		return
	}
	length := min(time.Duration(ask.HoldMs)*time.Millisecond, maxHold)
	if err := st.hold(s.work, length); err != nil {
		s.answer(m, nil, err)
		return
	}
	s.respond(m, holdReply{Instance: s.instance, Writer: s.writer, HoldMs: length.Milliseconds()})
}

// hold keeps cuts from beginning and returns when the one under way is over.
func (st *stream) hold(ctx context.Context, length time.Duration) error {
	st.mu.Lock()
	st.heldUntil = st.svc.stamp.elapsed() + length
	st.mu.Unlock()
	if length == 0 {
		st.kick()
		return nil
	}
	ticker := st.svc.clock.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		st.mu.Lock()
		over := st.written == st.cuts
		st.mu.Unlock()
		if over {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
	}
}

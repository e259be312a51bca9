package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemark-mesh/tidemark/examples/activity"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// The demo's sessions.
const (
	activityStream = "activity"
	activitySource = "app"
	activityKey    = "account-29"
	// activityResult is the result id of activity-47, activity-61 and activity-83.
	activityResult = "618c00bd4e7bb8b1e4b1cc2a7c428b74f43d4d8f2a7df66942190549918a0da0"
)

// activityLine answers one line of the feed of accounts.
func activityLine(id, account, clock string, pages int) string {
	return fmt.Sprintf(`{"id":%q,"account":%q,"at":%q,"pages":%d}`, id, account, clockTime(clock), pages)
}

func (s *story) sessions(ctx context.Context) error {
	s.scene("Another stream has sessions: what account-29 does within 11 minutes belongs together")
	docs, found := policy.Parse("examples/activity/activity.yaml", activity.Documents)
	if len(found) > 0 {
		return fmt.Errorf("%s:%d: %s: %s", found[0].File, found[0].Line, found[0].Rule, found[0].Message)
	}
	if _, err := config.Apply(ctx, s.conn.JS, docs, config.Options{Replicas: 1, Reason: "demo"}); err != nil {
		return err
	}
	err := s.pushTo(ctx, activityStream, activitySource, 0,
		activityLine("activity-47", activityKey, "10:00:00", 5), activityLine("activity-83", activityKey, "10:18:00", 3),
		activityLine("activity-90", "account-30", "10:45:00", 1))
	if err != nil {
		return err
	}
	s.say("10:00 and 10:18 are 18 minutes apart: two sessions")
	return s.showSessions(ctx, "10:00:00 to 10:11:00 events=1 pages=5", "10:18:00 to 10:29:00 events=1 pages=3")
}

func (s *story) bridge(ctx context.Context) error {
	s.scene("An event of 10:09 arrives late: it is 9 minutes from both, and the two sessions become one")
	if err := s.pushTo(ctx, activityStream, activitySource, 0, activityLine("activity-61", activityKey, "10:09:00", 4)); err != nil {
		return err
	}
	if err := s.showSessions(ctx, "10:00:00 to 10:29:00 events=3 pages=12"); err != nil {
		return err
	}
	s.say("both old ones were retracted in the batch that brought the new one: no reader sees them together")
	names := windowNames{}
	var past []windowRow
	err := s.eachWindow(ctx, s.conn.NC, activityStream, windowQuery{Key: activityKey, History: true}, func(w *windowRow) error {
		names.note(w)
		past = append(past, *w)
		return nil
	})
	if err != nil {
		return err
	}
	for i := range past {
		w := &past[i]
		s.say("  %s to %s  revision %d  %s%s", clockPart(w.Start), clockPart(w.End), w.Revision, w.values(), shortTimes(names.succession(w)))
	}
	last := past[len(past)-1]
	if last.ResultID != activityResult {
		return fmt.Errorf("the session's result id is %s instead of %s", last.ResultID, activityResult)
	}
	s.say("its result id %.12s… names its three members, in whatever order they came", last.ResultID)
	return nil
}

// showSessions waits for what was sent and shows the current sessions of the demo's
// account, which must be as given.
func (s *story) showSessions(ctx context.Context, want ...string) error {
	if err := s.wait(ctx, s.conn, activityStream); err != nil {
		return err
	}
	at := 0
	err := s.eachWindow(ctx, s.conn.NC, activityStream, windowQuery{Key: activityKey}, func(w *windowRow) error {
		text := fmt.Sprintf("%s to %s %s", clockPart(w.Start), clockPart(w.End), w.values())
		if at >= len(want) || text != want[at] {
			return fmt.Errorf("account-29 has the session %s", text)
		}
		at++
		s.say("%s %s, revision %d", w.Key, text, w.Revision)
		return nil
	})
	if err == nil && at < len(want) {
		err = errors.New("account-29 lacks the session " + want[at])
	}
	return err
}

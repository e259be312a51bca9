package main

import (
	"fmt"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// demoDay is the day of the demo's hour.
const demoDay = "2025-06-02T"

// order answers one line of the shop's feed.
func order(id, clock, amount string) string {
	return fmt.Sprintf(`{"id":%q,"order":{"region":%q,"amount":%q,"occurred_at":%q}}`, id, demoKey, amount, clockTime(clock))
}

// clockTime answers a time of the demo's day in RFC 3339.
func clockTime(clock string) string { return demoDay + clock + "Z" }

// clockPart answers the time of day of a time of the demo's day.
func clockPart(t envelope.EventTime) string { return shortTimes(t.String()) }

// shortTimes leaves the demo's day out of a text.
func shortTimes(text string) string {
	return strings.NewReplacer(demoDay, "", "Z", "").Replace(text)
}

// at answers a time of the demo's day.
func at(clock string) envelope.EventTime {
	t, err := envelope.ParseEventTime(clockTime(clock))
	if err != nil {
		panic(err) // a literal of this file
	}
	return t
}

// parseRecord reads the published revision of a row.
func parseRecord(w *windowRow) (*revision.Revision, error) { return revision.ParseJSON(w.Record) }

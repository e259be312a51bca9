package effect_test

import (
	"fmt"
	"os"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// A reader of the effects journal takes the last record of a key for the effect.
func ExampleDecode() {
	data, err := os.ReadFile("testdata/record.json")
	if err != nil {
		panic(err)
	}
	r, err := effect.Decode(data)
	if err != nil {
		panic(err)
	}
	fmt.Println(r.Identity.EffectType, "for", r.Identity.Subject, r.Identity.Window.Start)
	fmt.Println(r.State, r.Outcome)
	fmt.Println(r.Step.Who, r.Step.Name+":", r.Step.Reason)
	// Output:
	// issue-reward for eu-west 2026-11-30T10:00:00Z
	// WAIVED APPLIED
	// ana waive: below the limit
}

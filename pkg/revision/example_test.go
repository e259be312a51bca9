package revision_test

import (
	"fmt"
	"os"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// A consumer parses a revision, checks it, and applies it.
func ExampleParseJSON() {
	data, err := os.ReadFile("testdata/revision.v1.json")
	if err != nil {
		panic(err)
	}
	r, err := revision.ParseJSON(data)
	if err != nil {
		panic(err)
	}
	fmt.Println(r.Key, r.Window.Start, "to", r.Window.End)
	fmt.Println(r.Op, "revision", r.Revision, "after", r.Predecessor.Revision)
	for _, field := range r.Value {
		fmt.Println(field.Name, field.Text)
	}
	// Output:
	// eu-west 2026-11-30T10:00:00Z to 2026-11-30T11:00:00Z
	// UPSERT revision 2 after 1
	// orders 412
	// revenue 12930.50
}

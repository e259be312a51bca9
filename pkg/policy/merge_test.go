package policy

import (
	"strings"
	"testing"
)

func TestMergeLimit(t *testing.T) {
	long := make([]AggregateSpec, 40)
	for i := range long {
		long[i].Name = strings.Repeat("n", 64)
	}
	for _, c := range []struct {
		name       string
		partitions int
		aggregates []AggregateSpec
		want       int
	}{
		{"few names", 4, make([]AggregateSpec, 3), 400},
		{"all ranges", 16, make([]AggregateSpec, 3), 400},
		{"many long names", 4, long, 140},
		{"no ranges", 1000, make([]AggregateSpec, 3), 400},
	} {
		p := StreamTimePolicy{Sources: []SourceRef{{Name: "shop", Partitions: c.partitions}}, Aggregates: c.aggregates}
		if got := p.MergeLimit(); got != c.want {
			t.Errorf("%s: %d sessions a group, want %d", c.name, got, c.want)
		}
	}
}

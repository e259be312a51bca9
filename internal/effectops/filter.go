package effectops

import (
	"slices"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// Filter chooses effects; what is empty does not narrow.
type Filter struct {
	Keys    []effect.EffectKey
	States  []effect.State
	Type    string // effect type
	Adapter string // name, or name@version
	Job     string
	Key     string // business key
	Subject string
	Airlock string // the rule that an approval is needed for
}

// Empty tells whether the filter takes everything.
func (f *Filter) Empty() bool {
	return len(f.Keys) == 0 && len(f.States) == 0 && f.Type == "" && f.Adapter == "" && f.Job == "" && f.Key == "" && f.Subject == "" && f.Airlock == ""
}

// Takes tells whether r is chosen.
func (f *Filter) Takes(r *effect.Record) bool {
	return (len(f.Keys) == 0 || slices.Contains(f.Keys, r.Key)) &&
		(len(f.States) == 0 || slices.Contains(f.States, r.State)) &&
		same(f.Type, r.Identity.EffectType) && same(f.Job, r.Identity.Job) &&
		same(f.Key, r.Identity.Key) && same(f.Subject, r.Identity.Subject) &&
		same(f.Airlock, r.Airlock) && f.through(r.Request)
}

func same(want, got string) bool { return want == "" || want == got }

func (f *Filter) through(q *effect.Request) bool {
	if f.Adapter == "" {
		return true
	}
	return q != nil && (q.Adapter == f.Adapter || unversioned(q.Adapter) == f.Adapter)
}

// unversioned answers the name of "<name>@<version>".
func unversioned(ref string) string {
	name, _, _ := strings.Cut(ref, "@")
	return name
}

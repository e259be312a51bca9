package effector

import "github.com/tidemark-mesh/tidemark/internal/core/effectlog"

// resume begins slowly again with the providers behind gates that opened since it was
// called the last time: what piled up is not to reach them at once.
func (o *owner) resume() {
	shut := map[effectlog.Scope]bool{}
	for _, gate := range o.view.state().Gates() {
		if gate.Closed {
			shut[gate.Scope] = true
		}
	}
	for effectType, p := range o.book.types {
		for _, scope := range []effectlog.Scope{
			effectlog.Global, effectlog.TypeScope(effectType), effectlog.AdapterScope(p.provider.doc.Name),
			effectlog.GenerationScope(p.policy.Job, p.job.Generation),
		} {
			if o.shut[scope] && !shut[scope] {
				p.provider.limit.Ramp()
				break
			}
		}
	}
	o.shut = shut
}

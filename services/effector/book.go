package effector

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/internal/effectrule"
	"github.com/tidemark-mesh/tidemark/internal/sendlimit"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// library is the documents of one business stream, as far as effects need them. It does
// not change once it is published.
type library struct {
	stream   *policy.BusinessStream
	jobs     map[string]*policy.StreamTimePolicy // by policy generation
	policies map[string]*policy.EffectPolicy     // by name@version
	digests  map[string]string                   // of policies and adapters, by kind and name@version
	adapters map[string]*policy.Adapter          // by name@version
}

// libraries answers the documents by business stream, of those that have effect policies.
func libraries(snap config.Snapshot) map[string]*library {
	all := map[string]*library{}
	for _, e := range snap.EffectPolicies {
		if all[e.Effect.Stream] == nil {
			all[e.Effect.Stream] = &library{
				jobs: map[string]*policy.StreamTimePolicy{}, policies: map[string]*policy.EffectPolicy{},
				digests: map[string]string{}, adapters: map[string]*policy.Adapter{},
			}
		}
		l := all[e.Effect.Stream]
		l.policies[e.Effect.Ref()] = e.Effect
		l.digests["policy "+e.Effect.Ref()] = e.Digest
	}
	for _, e := range snap.Streams {
		if l := all[e.Stream.Name]; l != nil {
			l.stream = e.Stream
		}
	}
	for _, e := range snap.Policies {
		if l := all[e.Policy.Stream]; l != nil {
			l.jobs[e.Policy.PolicyGeneration()] = e.Policy
		}
	}
	for _, e := range snap.Adapters {
		for _, l := range all {
			l.adapters[e.Adapter.Ref()] = e.Adapter
			l.digests["adapter "+e.Adapter.Ref()] = e.Digest
		}
	}
	maps.DeleteFunc(all, func(_ string, l *library) bool { return l.stream == nil })
	return all
}

// provider is one adapter version with its connection and limits.
type provider struct {
	doc    *policy.Adapter
	caps   ledger.Adapter
	client adapter.Adapter
	limit  *sendlimit.Limiter
}

func (p *provider) scope() effect.Scope {
	url, account, environment := p.doc.Scope()
	return effect.Scope{URL: url, Account: account, Environment: environment}
}

// providers makes each adapter once for the whole process, so that rate and breaker are
// of the provider and not of a partition.
type providers struct {
	make   func(*policy.Adapter) (adapter.Adapter, error)
	limits *sendlimit.Group
	mu     sync.Mutex
	all    map[string]*provider
}

func (p *providers) of(doc *policy.Adapter) (*provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if made := p.all[doc.Ref()]; made != nil {
		p.limits.At(doc) // versions share a limiter; this one's limits count again
		return made, nil
	}
	client, err := p.make(doc)
	if err != nil {
		return nil, fmt.Errorf("adapter %s: %w", doc.Ref(), err)
	}
	made := &provider{doc: doc, caps: effectrule.Capabilities(doc), client: client, limit: p.limits.At(doc)}
	p.all[doc.Ref()] = made
	return made, nil
}

// close gives up every connection.
func (p *providers) close() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, made := range p.all {
		if failed := made.client.Close(); failed != nil {
			err = failed
		}
	}
	clear(p.all)
	return err
}

// ruled is an active policy with everything that it needs.
type ruled struct {
	policy   *policy.EffectPolicy
	provider *provider
	job      *policy.StreamTimePolicy // the canonical generation
	rule     *effectrule.Rule
	active   effectlog.Activate

	correction *effectrule.Correction // nil = manual
	undo       *provider              // of corrections; nil = manual
}

func (p *ruled) sessions() bool { return p.job.Window.Kind == policy.Session }

// book is the active policies of a partition by effect type, as its journal says.
type book struct {
	types    map[string]*ruled
	problems []string // why an active version cannot be used
}

// jobs answers the jobs that have an active policy, in order.
func (b *book) jobs() []string {
	var names []string
	for _, p := range b.types {
		names = append(names, p.policy.Job)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ofJob answers the active policies of a job, in order of their effect types.
func (b *book) ofJob(job string) (list []*ruled) {
	for _, effectType := range slices.Sorted(maps.Keys(b.types)) {
		if p := b.types[effectType]; p.policy.Job == job {
			list = append(list, p)
		}
	}
	return list
}

// open reads which versions are active and what they need. A version that cannot be used
// leaves its effect type without a policy: nothing of it is prepared or sent.
func (l *library) open(state *effectlog.State, known *book, all *providers) *book {
	b := &book{types: map[string]*ruled{}}
	for _, active := range state.Actives() {
		p, err := l.rule(active, state, known, all)
		switch {
		case err != nil:
			b.problems = append(b.problems, fmt.Sprintf("effect type %s: %v", active.EffectType, err))
		case p != nil:
			b.types[active.EffectType] = p
		}
	}
	return b
}

func (l *library) rule(active effectlog.ActiveState, state *effectlog.State, known *book, all *providers) (*ruled, error) {
	p, a := l.policies[active.Policy], l.adapters[active.Adapter]
	switch {
	case p == nil:
		return nil, fmt.Errorf("policy %s is active and not applied; apply its document again", active.Policy)
	case a == nil:
		return nil, fmt.Errorf("adapter %s is active and not applied; apply its document again", active.Adapter)
	case l.digests["policy "+active.Policy] != active.PolicyDigest.String():
		return nil, fmt.Errorf("policy %s is active with another digest than the applied document has; activate it again", active.Policy)
	case l.digests["adapter "+active.Adapter] != active.AdapterDigest.String():
		return nil, fmt.Errorf("adapter %s is active with another digest than the applied document has; activate its policy again", active.Adapter)
	case p.Adapter != active.Adapter || p.EffectType != active.EffectType:
		return nil, fmt.Errorf("policy %s names adapter %s and effect type %s, the activation %s", active.Policy, p.Adapter, p.EffectType, active.Adapter)
	}
	alias, found := state.Alias(p.Job)
	if !found {
		return nil, fmt.Errorf("the journal has no alias of job %s; apply policy %s again", p.Job, active.Policy)
	}
	job := l.jobs[policy.PolicyGeneration(p.Job, alias.Canonical)]
	if job == nil {
		return nil, fmt.Errorf("%s is canonical and not applied; apply its document again", policy.PolicyGeneration(p.Job, alias.Canonical))
	}
	if known != nil {
		if same := known.types[active.EffectType]; same != nil && same.active == active.Activate && same.job.Generation == job.Generation {
			return same, nil
		}
	}
	provider, err := all.of(a)
	if err != nil {
		return nil, err
	}
	rule, findings := effectrule.Compile(p, l.stream, job, a)
	if len(findings) > 0 {
		return nil, fmt.Errorf("policy %s: %s", active.Policy, findings[0])
	}
	made := &ruled{policy: p, provider: provider, job: job, rule: rule, active: active.Activate}
	if err := l.corrections(made, all); err != nil {
		return nil, err
	}
	return made, nil
}

// corrections reads how a policy has its corrections carried out.
func (l *library) corrections(p *ruled, all *providers) error {
	doc := p.provider.doc
	if ref := p.policy.Corrections.Adapter; ref != "" {
		if doc = l.adapters[ref]; doc == nil {
			return fmt.Errorf("policy %s has its corrections carried out by adapter %s, which is not applied; apply its document again", p.policy.Ref(), ref)
		}
	}
	correction, findings := effectrule.CompileCorrection(p.policy, p.job, p.provider.doc, doc)
	if len(findings) > 0 {
		return fmt.Errorf("policy %s: %s", p.policy.Ref(), findings[0])
	}
	if correction == nil {
		return nil
	}
	var err error
	p.correction = correction
	p.undo, err = all.of(doc)
	return err
}

// unversioned answers the name of "<name>@<version>".
func unversioned(ref string) string {
	name, _, _ := strings.Cut(ref, "@")
	return name
}

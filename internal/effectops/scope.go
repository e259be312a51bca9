package effectops

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
)

// generationOf reads "<job>@<gen>".
func generationOf(policyGeneration string) (job string, generation int) {
	job, number, _ := strings.Cut(policyGeneration, "@")
	generation, err := strconv.Atoi(number)
	if err != nil {
		return job, 0
	}
	return job, generation
}

// covers tells whether a closed scope holds dispatches of r back.
func covers(scope effectlog.Scope, r *effect.Record) bool {
	q := sending(r)
	switch scope {
	case effectlog.Global, effectlog.Unreadable:
		return true
	case effectlog.TypeScope(q.EffectType), effectlog.AdapterScope(q.Adapter), effectlog.GenerationScope(q.Job, q.Generation):
		return true
	}
	return false
}

// OperatorScope reads a scope that an operator may close or open.
func OperatorScope(text string) (effectlog.Scope, error) {
	scope, err := effectlog.ParseScope(text)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(text, "switch:") {
		return "", fmt.Errorf("scope %s: the gate of a switch moves with the rollout alone", scope)
	}
	return scope, nil
}

package effectlog

import (
	"fmt"
	"strconv"
	"strings"
)

// Scope names what a gate closes: "global", "type:<effectType>", "adapter:<name>",
// "generation:<job>@<gen>", "switch:<job>" or "unreadable".
type Scope string

// Scopes that have no name.
const (
	Global Scope = "global"
	// Unreadable is closed by a record that this version cannot read, since it might be
	// a pause; an operator opens it.
	Unreadable Scope = "unreadable"
	// Unset stands for a journal without any CONTROL; no record names it.
	Unset Scope = "no-control"
)

// Prefixes of the scopes with a name.
const (
	typePrefix       = "type:"
	adapterPrefix    = "adapter:"
	generationPrefix = "generation:"
	switchPrefix     = "switch:"
)

// TypeScope answers the scope of an effect type.
func TypeScope(effectType string) Scope { return Scope(typePrefix + effectType) }

// AdapterScope answers the scope of an adapter, all its versions.
func AdapterScope(name string) Scope { return Scope(adapterPrefix + name) }

// GenerationScope answers the scope of a policy generation.
func GenerationScope(job string, generation int) Scope {
	return Scope(generationPrefix + job + "@" + strconv.Itoa(generation))
}

// SwitchScope answers the scope that a switch of the job's canonical generation closes.
func SwitchScope(job string) Scope { return Scope(switchPrefix + job) }

// ParseScope reads a scope as an operator or a record writes it.
func ParseScope(text string) (Scope, error) {
	s := Scope(text)
	if s == Global || s == Unreadable {
		return s, nil
	}
	prefix, name, found := strings.Cut(text, ":")
	if !found {
		return "", fmt.Errorf("scope %.64q: want global, unreadable, type:<effectType>, adapter:<name> or generation:<job>@<number>", text)
	}
	switch prefix + ":" {
	case typePrefix, adapterPrefix, switchPrefix:
		return s, checkName("scope", name)
	case generationPrefix:
		job, number, found := strings.Cut(name, "@")
		generation, err := strconv.Atoi(number)
		if !found || err != nil || generation < 1 || strconv.Itoa(generation) != number {
			return "", fmt.Errorf("scope %.64q: want generation:<job>@<number>, such as generation:hourly-revenue@14", text)
		}
		return s, checkName("scope", job)
	}
	return "", fmt.Errorf("scope %.64q: unknown kind %.32q", text, prefix)
}

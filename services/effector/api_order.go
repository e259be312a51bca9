package effector

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/internal/effectops"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

// Bounds of an order.
const (
	orderBytes   = 256 << 10
	effectsMost  = 1000 // effects of one job
	expiresUsual = time.Hour
	expiresLeast = policy.Second
	expiresMost  = 30 * policy.Day
	waitLeast    = policy.Millisecond
	waitMost     = policy.Minute
)

// order is what a person asks for over HTTP (schema effectOrder.v1): an act upon one
// effect that the path names, upon several by key, or upon all that a filter takes; or
// a move of a gate, or a recovery of key partitions.
type order struct {
	Who    string `json:"who"`
	Reason string `json:"reason"`
	DryRun bool   `json:"dryRun"` // count and show, change nothing

	Digest  string `json:"payloadDigest"` // approve one: the payload that was shown
	Expires string `json:"expires"`       // approve

	Outcome  string `json:"outcome"`  // resolve: applied, not-applied, compensated
	Evidence string `json:"evidence"` // resolve: SHA-256 of what proves it
	Ref      string `json:"ref"`      // resolve: the provider's own id

	Keys   []effect.EffectKey `json:"effectKeys"`
	Filter *chosen            `json:"filter"`
	Count  *int               `json:"count"` // with a filter: how many effects a dry run counted

	Partitions []int  `json:"partitions"` // recover; none = all
	Scope      string `json:"scope"`      // gates; none = global

	Wait string `json:"wait"` // for answers of owners

	act    effectops.Order // none with gates
	digest revision.Digest
	gate   effectlog.Scope
}

// chosen is a filter as JSON; it must narrow, or say all.
type chosen struct {
	All     bool           `json:"all"`
	States  []effect.State `json:"states"`
	Type    string         `json:"type"`
	Adapter string         `json:"adapter"`
	Job     string         `json:"job"`
	Key     string         `json:"key"`
	Subject string         `json:"subject"`
	Airlock string         `json:"airlock"`
}

func (c *chosen) filter() effectops.Filter {
	return effectops.Filter{States: c.States, Type: c.Type, Adapter: c.Adapter, Job: c.Job, Key: c.Key, Subject: c.Subject, Airlock: c.Airlock}
}

// verbs of orders, as paths name them.
const (
	verbResolve = "resolve" // the act depends on the outcome
	verbRecover = "recover"
	verbPause   = "pause"
	verbResume  = "resume"
)

// members answers the members that an order may have.
func members(verb string, one bool) []string {
	list := []string{"who", "reason", "dryRun"}
	switch verb {
	case verbPause, verbResume:
		return append(list, "scope")
	case verbRecover:
		return append(list, "wait", "partitions")
	case verbResolve:
		list = append(list, "outcome", "evidence", "ref")
	case string(effectlog.ActApprove):
		list = append(list, "expires")
		if one {
			list = append(list, "payloadDigest")
		}
	}
	list = append(list, "wait")
	switch {
	case one:
	case verb == verbResolve: // what was found out is of effects that somebody looked at
		list = append(list, "effectKeys")
	default:
		list = append(list, "effectKeys", "filter", "count")
	}
	return list
}

// filterMembers are those of a filter.
var filterMembers = []string{"all", "states", "type", "adapter", "job", "key", "subject", "airlock"}

// decodeOrder reads an order about one effect or about several. Members of other verbs,
// members that stand there twice, in another case, or as null are refused, and so is what
// lacks who or why. Errors do not repeat values.
func decodeOrder(body []byte, verb string, one bool) (*order, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, errors.New("the body is empty; send a JSON object with who and reason")
	}
	if _, err := envelope.Canonical(nil, body); err != nil {
		return nil, fmt.Errorf("the body is no JSON object: %w", err)
	}
	top, err := object(body, "the order", members(verb, one))
	if err != nil {
		return nil, err
	}
	if filter := top["filter"]; filter != nil {
		if _, err := object(filter, "the filter", filterMembers); err != nil {
			return nil, err
		}
	}
	o := &order{}
	if err := json.Unmarshal(body, o); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return nil, fmt.Errorf("member %s is no %s", wrong.Field, wrong.Type)
		}
		return nil, fmt.Errorf("the order cannot be read: %w", err)
	}
	return o, o.check(verb, one)
}

// object answers the members of a JSON object, which must all be known and have a value.
func object(text []byte, what string, known []string) (map[string]json.RawMessage, error) {
	var list map[string]json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil || list == nil {
		return nil, fmt.Errorf("%s is no JSON object", what)
	}
	for name, value := range list {
		switch {
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("%s has no member %.64q here; there are %s", what, name, strings.Join(known, ", "))
		case string(value) == "null":
			return nil, fmt.Errorf("member %s is null; leave it out", name)
		}
	}
	return list, nil
}

func (o *order) check(verb string, one bool) error {
	if !o.DryRun && (o.Who == "" || o.Reason == "") {
		return errors.New("who and reason are wanted: they are kept with the decision")
	}
	if len(o.Who) > effect.MaxName || len(o.Reason) > effect.MaxReason {
		return fmt.Errorf("who has at most %d bytes and reason %d", effect.MaxName, effect.MaxReason)
	}
	wait, err := within("wait", o.Wait, 0, waitLeast, waitMost)
	if err != nil {
		return err
	}
	o.act.Wait = wait
	switch verb {
	case verbPause, verbResume:
		return o.checkGate(verb)
	case verbRecover:
		o.act.Act = effectlog.ActRecover
		return o.checkPartitions()
	case verbResolve:
		err = o.checkOutcome()
	default:
		o.act.Act = effectlog.Act(verb)
		if verb == string(effectlog.ActApprove) {
			err = o.checkApproval(one)
		}
	}
	if err != nil || one {
		return err
	}
	return o.checkChoice()
}

// within reads a duration between two bounds.
func within(member, text string, otherwise time.Duration, least, most policy.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}
	d, err := policy.ParseDuration(text)
	if err != nil || d < least || d > most {
		return 0, fmt.Errorf("%s is no duration from %s to %s", member, least, most)
	}
	return time.Duration(d) * time.Microsecond, nil
}

func (o *order) checkGate(verb string) (err error) {
	o.gate, err = effectops.OperatorScope(cmp.Or(o.Scope, string(effectlog.Global)))
	if err == nil && verb == verbPause && o.gate == effectlog.Unreadable {
		err = errors.New("scope unreadable is closed by records alone")
	}
	return err
}

func (o *order) checkPartitions() error {
	seen := map[int]bool{}
	for _, pp := range o.Partitions {
		if pp < 0 || pp >= policy.MaxPartitions || seen[pp] {
			return fmt.Errorf("partitions: want different numbers from 0 to %d", policy.MaxPartitions-1)
		}
		seen[pp] = true
	}
	return nil
}

func (o *order) checkOutcome() (err error) {
	switch o.Outcome {
	case "compensated":
		if o.Evidence != "" || o.Ref != "" {
			return errors.New("evidence and ref are for the outcomes applied and not-applied")
		}
		o.act.Act = effectlog.ActCompensated
		return nil
	case "applied", "not-applied":
	default:
		return errors.New("outcome: want applied, not-applied or compensated")
	}
	resolve := &effectlog.Resolve{Applied: o.Outcome == "applied", Ref: o.Ref}
	if resolve.Evidence, err = revision.ParseDigest(o.Evidence); err != nil || resolve.Evidence.IsZero() {
		return errors.New("evidence: want the SHA-256 of what proves it, as 64 digits of lowercase hex; keep what it is of")
	}
	if len(o.Ref) > effect.MaxName {
		return fmt.Errorf("ref has at most %d bytes", effect.MaxName)
	}
	o.act.Act, o.act.Resolve = effectlog.ActResolve, resolve
	return nil
}

func (o *order) checkApproval(one bool) (err error) {
	if o.act.Expires, err = within("expires", o.Expires, expiresUsual, expiresLeast, expiresMost); err != nil || !one {
		return err
	}
	if o.digest, err = revision.ParseDigest(o.Digest); err != nil || o.digest.IsZero() {
		return errors.New("payloadDigest: want the digest of the payload that you were shown (request.payloadDigest), as 64 digits of lowercase hex")
	}
	return nil
}

// checkChoice wants effects by key or by filter, and a count with a filter that is carried
// out: nobody decides about more than was counted before.
func (o *order) checkChoice() error {
	if (len(o.Keys) == 0) == (o.Filter == nil) {
		return errors.New("say which effects: effectKeys or a filter")
	}
	if len(o.Keys) > effectsMost {
		return fmt.Errorf("effectKeys: at most %d in one order", effectsMost)
	}
	seen := map[effect.EffectKey]bool{}
	for _, key := range o.Keys {
		if key.IsZero() || seen[key] {
			return errors.New("effectKeys: want different keys")
		}
		seen[key] = true
	}
	if o.Filter == nil {
		if o.Count != nil {
			return errors.New("count is for a filter")
		}
		return nil
	}
	for _, state := range o.Filter.States {
		if !state.Known() {
			return fmt.Errorf("filter: states are %v", effect.States())
		}
	}
	filter := o.Filter.filter()
	switch {
	case o.Filter.All != filter.Empty():
		return errors.New(`filter: say what it takes, or "all": true alone`)
	case o.Count != nil && (*o.Count < 0 || o.DryRun):
		return errors.New("count: what a dry run counted, with the order that is carried out")
	case o.Count == nil && !o.DryRun:
		return errors.New("with a filter, first send dryRun, then the same order with the count that it answered")
	}
	return nil
}

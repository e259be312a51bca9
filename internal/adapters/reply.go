package adapters

import (
	"fmt"
	"mime"
	"strings"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// reply is a provider's whole answer. Over NATS there is no status, and every reply says
// that the provider took the request unless a list of the document says otherwise.
type reply struct {
	status     int // 0 over NATS
	mediaType  string
	retryAfter time.Duration
	body       []byte
}

// name says what the reply was, for people, without a byte of its body.
func (r *reply) name() string {
	if r.status == 0 {
		return "a reply"
	}
	return fmt.Sprintf("status %d", r.status)
}

// json answers the body as JSON, if it is.
func (r *reply) json() (*envelope.Document, bool) {
	if !isJSON(r.mediaType) {
		return nil, false
	}
	return parseBody(r.body)
}

func isJSON(mediaType string) bool {
	name, _, err := mime.ParseMediaType(mediaType)
	return err == nil && (name == "application/json" || strings.HasPrefix(name, "application/") && strings.HasSuffix(name, "+json"))
}

// matches tells whether a list of the document names the reply. A code is text or a
// number in a body that is JSON; where d is nil the body is not.
func matches(list []policy.AnswerMatch, status int, d *envelope.Document) bool {
	for _, m := range list {
		if m.Status != status {
			continue
		}
		if m.Code == "" {
			if status != 0 {
				return true
			}
			continue // over NATS a match without a code would be any reply
		}
		if d == nil {
			continue
		}
		if code, ok := textAt(d, root, m.At); ok && code == m.Code {
			return true
		}
	}
	return false
}

// classify says how the attempt of call ended. Lists come first, and of these the ones
// that assume most of the provider; then a success must prove itself. Everything else is
// ambiguous, whatever family its status is of.
func classify(doc *policy.Adapter, call *adapter.Call, r *reply) adapter.Answer {
	d, ok := r.json()
	if !ok {
		d = nil
	}
	out := adapter.Answer{Class: effect.Ambiguous, RetryAfter: r.retryAfter}
	whole := false
	if d != nil {
		out.Evidence, whole = readEvidence(&doc.Evidence, d, root)
	}
	out.Evidence.Source, out.Evidence.Attempt, out.Evidence.Digest = effect.FromAnswer, call.Attempt, digestOf(r.body)
	switch {
	case matches(doc.BodyMismatch, r.status, d):
		out.Class, out.Detail = effect.OtherBytes, r.name()+": the provider knows the key with another body"
	case matches(doc.InFlight, r.status, d):
		out.Class, out.Detail = effect.InFlight, r.name()+": the provider works on the key"
	case matches(doc.Pending, r.status, d) || r.status == 202:
		out.Class, out.Detail = effect.Pending, r.name()+": accepted, not done"
	case matches(doc.Throttle, r.status, d):
		out.Class, out.Detail = effect.Throttled, r.name()+": a limiter before execution"
	case matches(doc.Reject, r.status, d):
		out.Class, out.Detail = effect.Refused, r.name()+": refused before execution"
	case r.status != 0 && (r.status < 200 || r.status > 299):
		out.Detail = r.name() + ", of which the adapter says nothing"
	case d == nil:
		out.Detail = r.name() + ", but its body is no JSON that can be read in one way"
	case !whole:
		out.Detail = r.name() + ", but its body does not name all that evidence declares"
	case out.Evidence.Key != call.Key:
		out.Detail = r.name() + ", but its body names another effectKey"
	default:
		out.Class, out.Detail = effect.Executed, r.name()+": its body names the effect"
	}
	out.Evidence.Class = out.Class
	return out
}

// find reads the answer to a query. What is neither an execution of ours nor declared to
// be an absence is ErrUnclear.
func find(doc *policy.Adapter, key effect.EffectKey, r *reply) (adapter.Finding, error) {
	d, ok := r.json()
	if !ok {
		d = nil
	}
	unclear := func(why string) (adapter.Finding, error) {
		return adapter.Finding{}, fmt.Errorf("%w: %s, %s", adapter.ErrUnclear, r.name(), why)
	}
	if matches(doc.Query.Absent, r.status, d) {
		if d == nil && len(r.body) > 0 {
			return unclear("declared to mean absence, but its body is not the provider's JSON: something between may have answered")
		}
		return adapter.Finding{Evidence: effect.Evidence{Source: effect.FromQuery, Digest: digestOf(r.body)}}, nil
	}
	if matches(doc.Pending, r.status, d) {
		return unclear("accepted, not done")
	}
	if r.status != 0 && r.status != 200 {
		return unclear("of which the adapter says nothing")
	}
	if d == nil {
		return unclear("but its body is no JSON that can be read in one way")
	}
	out, why := count(doc, key, d)
	if why != "" {
		return unclear(why)
	}
	out.Evidence.Source, out.Evidence.Found, out.Evidence.Digest = effect.FromQuery, out.Found, digestOf(r.body)
	return out, nil
}

// count counts the executions that a body shows under our key; why is why it cannot.
func count(doc *policy.Adapter, key effect.EffectKey, d *envelope.Document) (out adapter.Finding, why string) {
	one := func(n envelope.Node) string {
		e, whole := readEvidence(&doc.Evidence, d, n)
		switch {
		case e.Key.IsZero():
			return "but an execution in it names no effectKey"
		case e.Key != key:
			return "but it shows an execution of another effectKey, so it is no answer to this question"
		case !whole:
			return "but an execution in it does not name all that evidence declares"
		}
		if out.Found++; out.Found == 1 {
			out.Evidence = e
		}
		return ""
	}
	// Without a declared list the body is one execution. Where there are several, a
	// provider may answer them in an array; an empty one was not declared to mean anything.
	if doc.Query.List == "" && (d.Kind(root) != envelope.Array || isEmpty(d, root)) {
		why = one(root)
		return out, why
	}
	list, ok := at(d, root, doc.Query.List)
	if !ok || d.Kind(list) != envelope.Array {
		return out, "but it has no list where the adapter says"
	}
	seen := 0
	d.Members(list, func(_ string, n envelope.Node) bool {
		if seen++; seen > maxListed {
			why = "but it lists more than can be executions of one effect"
		} else {
			why = one(n)
		}
		return why == ""
	})
	return out, why
}

func isEmpty(d *envelope.Document, array envelope.Node) bool {
	empty := true
	d.Members(array, func(string, envelope.Node) bool {
		empty = false
		return false
	})
	return empty
}

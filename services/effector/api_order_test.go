package effector

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tidemark-mesh/tidemark/internal/core/effectlog"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/schema"
)

// published answers a schema by name.
func published(t testing.TB, name string) *jsonschema.Schema {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	for _, one := range schema.Names() {
		text, _ := schema.Lookup(one)
		if strings.HasSuffix(one, ".proto") {
			continue
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		must(t, err)
		must(t, compiler.AddResource(one+".json", doc))
	}
	compiled, err := compiler.Compile(name + ".json")
	must(t, err)
	return compiled
}

// conforms fails unless text is what a schema says.
func conforms(t testing.TB, s *jsonschema.Schema, text string) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	must(t, err)
	if err := s.Validate(v); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

var orderVerbs = []string{"approve", "hold", "void", "reconcile", "resolve", "waive", "recover", "pause", "resume"}

const (
	someDigest = "5536e04d5536e04d5536e04d5536e04d5536e04d5536e04d5536e04d5536e04d"
	person     = `"who":"ana","reason":"a test"`
)

var goodOrders = []struct {
	verb string
	one  bool
	body string
}{
	{"approve", true, `{` + person + `,"payloadDigest":"` + someDigest + `","expires":"2d","wait":"1s"}`},
	{"approve", false, `{` + person + `,"filter":{"airlock":"amountAbove"},"count":3}`},
	{"approve", false, `{"dryRun":true,"filter":{"all":true}}`},
	{"hold", true, `{` + person + `}`},
	{"hold", false, `{` + person + `,"effectKeys":["` + someDigest + `"]}`},
	{"void", false, `{` + person + `,"filter":{"states":["PREPARED","HELD"],"type":"issue-reward","adapter":"a@1","job":"hourly","key":"k","subject":"s"},"count":0}`},
	{"reconcile", true, `{` + person + `,"wait":"1m"}`},
	{"resolve", true, `{` + person + `,"outcome":"applied","evidence":"` + someDigest + `","ref":"881"}`},
	{"resolve", false, `{` + person + `,"outcome":"compensated","effectKeys":["` + someDigest + `"]}`},
	{"waive", true, `{` + person + `}`},
	{"recover", false, `{` + person + `,"partitions":[0,3]}`},
	{"pause", false, `{` + person + `,"scope":"generation:hourly@2"}`},
	{"resume", false, `{` + person + `,"scope":"unreadable"}`},
}

func TestAnOrderIsReadStrictly(t *testing.T) {
	s := published(t, "effectOrder.v1")
	for _, good := range goodOrders {
		if _, err := decodeOrder([]byte(good.body), good.verb, good.one); err != nil {
			t.Errorf("%s %s: %v", good.verb, good.body, err)
		}
		conforms(t, s, good.body)
	}
	for _, bad := range []struct {
		verb string
		one  bool
		body string
		says string
	}{
		{"hold", true, ``, "empty"},
		{"hold", true, `[]`, "no JSON object"},
		{"hold", true, `null`, "no JSON object"},
		{"hold", true, `{` + person + `} {}`, "JSON"},
		{"hold", true, `{"who":"ana"}`, "who and reason"},
		{"hold", true, `{"who":"","reason":"r"}`, "who and reason"},
		{"hold", true, `{` + person + `,"who":"bob"}`, "JSON"},
		{"hold", true, `{"Who":"ana","reason":"r"}`, "no member"},
		{"hold", true, `{"who":null,"reason":"r"}`, "null"},
		{"hold", true, `{"who":7,"reason":"r"}`, "member who"},
		{"hold", true, `{"who":"` + strings.Repeat("a", effect.MaxName+1) + `","reason":"r"}`, "bytes"},
		{"hold", true, `{` + person + `,"wait":"2m"}`, "wait"},
		{"hold", true, `{` + person + `,"wait":"soon"}`, "wait"},
		{"hold", true, `{` + person + `,"payloadDigest":"` + someDigest + `"}`, "no member"},
		{"hold", true, `{` + person + `,"filter":{"all":true},"count":1}`, "no member"},
		{"hold", false, `{` + person + `}`, "which effects"},
		{"hold", false, `{` + person + `,"filter":{"all":true},"effectKeys":["` + someDigest + `"]}`, "which effects"},
		{"hold", false, `{` + person + `,"filter":{},"count":1}`, "all"},
		{"hold", false, `{` + person + `,"filter":{"all":true,"type":"t"},"count":1}`, "all"},
		{"hold", false, `{` + person + `,"filter":{"kind":"t"},"count":1}`, "no member"},
		{"hold", false, `{` + person + `,"filter":{"States":["HELD"]},"count":1}`, "no member"},
		{"hold", false, `{` + person + `,"filter":{"states":["SENT"]},"count":1}`, "states"},
		{"hold", false, `{` + person + `,"filter":{"type":"t"}}`, "dryRun"},
		{"hold", false, `{` + person + `,"filter":{"type":"t"},"count":-1}`, "count"},
		{"hold", false, `{"dryRun":true,"filter":{"type":"t"},"count":1}`, "count"},
		{"hold", false, `{` + person + `,"effectKeys":["` + someDigest + `"],"count":1}`, "count"},
		{"hold", false, `{` + person + `,"effectKeys":["` + someDigest + `","` + someDigest + `"]}`, "different"},
		{"hold", false, `{` + person + `,"effectKeys":["` + strings.Repeat("0", 64) + `"]}`, "different"},
		{"hold", false, `{` + person + `,"effectKeys":["5536"]}`, "cannot be read"},
		{"approve", true, `{` + person + `}`, "payloadDigest"},
		{"approve", true, `{` + person + `,"payloadDigest":"` + strings.ToUpper(someDigest) + `"}`, "payloadDigest"},
		{"approve", true, `{` + person + `,"payloadDigest":"` + someDigest + `","expires":"31d"}`, "expires"},
		{"resolve", true, `{` + person + `}`, "outcome"},
		{"resolve", true, `{` + person + `,"outcome":"applied"}`, "evidence"},
		{"resolve", true, `{` + person + `,"outcome":"compensated","ref":"1"}`, "evidence and ref"},
		{"resolve", false, `{` + person + `,"outcome":"compensated","filter":{"all":true},"count":1}`, "no member"},
		{"recover", false, `{` + person + `,"partitions":[99]}`, "partitions"},
		{"recover", false, `{` + person + `,"partitions":[1,1]}`, "partitions"},
		{"pause", false, `{` + person + `,"scope":"switch:hourly"}`, "rollout"},
		{"pause", false, `{` + person + `,"scope":"unreadable"}`, "records alone"},
		{"pause", false, `{` + person + `,"scope":"all"}`, "scope"},
	} {
		if _, err := decodeOrder([]byte(bad.body), bad.verb, bad.one); err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%s %s: %v, want an error about %q", bad.verb, bad.body, err, bad.says)
		}
	}
}

// FuzzOrder: what is taken is what the published schema describes, says who and why unless
// it changes nothing, and makes a command that a journal takes.
func FuzzOrder(f *testing.F) {
	s := published(f, "effectOrder.v1")
	for _, good := range goodOrders {
		f.Add([]byte(good.body), uint8(slices.Index(orderVerbs, good.verb)), good.one)
	}
	f.Fuzz(func(t *testing.T, body []byte, n uint8, one bool) {
		verb := orderVerbs[int(n)%len(orderVerbs)]
		o, err := decodeOrder(body, verb, one)
		if err != nil {
			if o == nil || err.Error() != "" {
				return
			}
			t.Fatal("an error without a text")
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		must(t, err)
		if err := s.Validate(v); err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		if o.DryRun || o.gate != "" {
			return
		}
		command := effectlog.Command{
			Stamp: effectlog.Stamp{ID: "fuzz-stamp", Who: o.Who, Reason: o.Reason, At: effect.Time(base)}, Act: o.act.Act, Resolve: o.act.Resolve,
		}
		if verb != verbRecover {
			command.Key = effect.EffectKey{1}
		}
		if o.act.Act == effectlog.ActApprove {
			digest := o.digest
			digest[0] |= 1 // of many, each has its own
			command.Approve = &effectlog.Approve{Digest: digest, Expires: effect.Time(base).Add(o.act.Expires.Microseconds())}
		}
		if _, err := command.Encode(); err != nil {
			t.Fatalf("%s: %v", verb, fmt.Errorf("taken, but no command: %w", err))
		}
	})
}

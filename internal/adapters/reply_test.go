package adapters

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adaptertest"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

const judging = `kind: Adapter
name: rewards-api
version: 1
type: http
url: https://rewards.example/issue
evidence: {key: /data/ref, amount: /data/points, subject: /data/account, ref: /id}
reject: [{status: 422, code: account_closed}, {status: 400, code: '17', at: /error/number}]
throttle: [{status: 429}]
inFlight: [{status: 409, code: in_flight}]
bodyMismatch: [{status: 409, code: key_reused}, {status: 422, code: key_reused}]
pending: [{status: 200, code: processing, at: /state}]
query: {url: 'https://rewards.example/{effectKey}', absent: [{status: 404, code: no_such_reward}]}
`

func named(key effect.EffectKey) string {
	return `{"id":9007199254740993,"data":{"ref":"` + key.String() + `","points":12.5,"account":"account-1"}}`
}

func answered(status int, body string) *reply {
	return &reply{status: status, mediaType: "application/json", body: []byte(body)}
}

func TestAnswersAreClassifiedAsTheDocumentSays(t *testing.T) {
	doc, call := document(t, judging), callTo("https://rewards.example/issue")
	good := named(someKey)
	for _, c := range []struct {
		status int
		body   string
		want   effect.Class
	}{
		{200, good, effect.Executed},
		{201, good, effect.Executed},
		{202, good, effect.Pending}, // whatever it names
		{202, "", effect.Pending},
		{200, strings.Replace(good, `"id"`, `"state":"processing","id"`, 1), effect.Pending},
		{200, named(effect.EffectKey{9}), effect.Ambiguous},
		{200, strings.ToUpper(good), effect.Ambiguous},
		{200, strings.Replace(good, "12.5", "true", 1), effect.Ambiguous},
		{200, strings.Replace(good, "12.5", `"a dozen"`, 1), effect.Ambiguous},
		{200, strings.Replace(good, `"account-1"`, `["account-1"]`, 1), effect.Ambiguous},
		{200, strings.Replace(good, `"points":12.5,`, "", 1), effect.Ambiguous},
		{200, good + "{}", effect.Ambiguous},
		{200, good[:len(good)-1], effect.Ambiguous},
		{200, "\ufeff" + good, effect.Ambiguous},
		{200, strings.Replace(good, `"points"`, `"Points":1,"points"`, 1), effect.Ambiguous},
		{200, strings.Replace(good, "account-1", "account\xff", 1), effect.Ambiguous},
		{200, strings.Repeat("[", 70) + strings.Repeat("]", 70), effect.Ambiguous},
		{200, `{"code":"account_closed"}`, effect.Ambiguous},
		{200, "", effect.Ambiguous},
		{204, "", effect.Ambiguous},
		{301, good, effect.Ambiguous},
		{304, "", effect.Ambiguous},
		{101, "", effect.Ambiguous},
		{400, good, effect.Ambiguous},
		{400, `{"error":{"number":17}}`, effect.Refused},
		{400, `{"error":{"number":17.0}}`, effect.Ambiguous},
		{404, "", effect.Ambiguous},
		{409, "", effect.Ambiguous},
		{409, `{"code":"in_flight"}`, effect.InFlight},
		{409, `{"code":"key_reused"}`, effect.OtherBytes},
		{409, `{"code":"in_flight","code":"in_flight"}`, effect.Ambiguous},
		{422, `{"code":"account_closed"}`, effect.Refused},
		{422, `{"code":"Account_closed"}`, effect.Ambiguous},
		{422, `{"code":"key_reused"}`, effect.OtherBytes},
		{422, `account_closed`, effect.Ambiguous},
		{429, "<html>", effect.Throttled},
		{500, good, effect.Ambiguous},
		{503, "", effect.Ambiguous},
	} {
		got := classify(doc, &call, answered(c.status, c.body))
		if got.Class != c.want || got.Detail == "" || strings.Contains(got.Detail, "account-1") {
			t.Errorf("%d %s is %s (%s); want %s", c.status, c.body, got.Class, got.Detail, c.want)
		}
	}
}

func TestEvidenceIsWhatTheProviderNamed(t *testing.T) {
	doc, call := document(t, judging), callTo("https://rewards.example/issue")
	got := classify(doc, &call, answered(200, strings.Replace(named(someKey), "12.5", `"013.500"`, 1)))
	want := effect.Evidence{
		Source: effect.FromAnswer, Attempt: 1, Class: effect.Executed, Key: someKey, Amount: "13.5", Subject: "account-1",
		Ref: "9007199254740993", Digest: got.Evidence.Digest,
	}
	if got.Evidence != want || got.Evidence.Digest.IsZero() {
		t.Errorf("evidence is %+v; want %+v", got.Evidence, want)
	}
}

func TestOnlyJSONIsRead(t *testing.T) {
	doc, call := document(t, judging), callTo("https://rewards.example/issue")
	for mediaType, want := range map[string]effect.Class{
		"application/json": effect.Executed, "application/json; charset=utf-8": effect.Executed, "application/vnd.rewards+json": effect.Executed,
		"Application/JSON": effect.Executed, "": effect.Ambiguous, "text/html": effect.Ambiguous, "text/json": effect.Ambiguous,
		"application/json, text/html": effect.Ambiguous, "application/xml": effect.Ambiguous,
	} {
		if got := classify(doc, &call, &reply{status: 200, mediaType: mediaType, body: []byte(named(someKey))}); got.Class != want {
			t.Errorf("type %q is %s (%s); want %s", mediaType, got.Class, got.Detail, want)
		}
	}
}

func TestAQueryFindsOneOrDeclaredAbsence(t *testing.T) {
	doc := document(t, judging)
	const unclear = 99
	for _, c := range []struct {
		status int
		body   string
		want   uint32
	}{
		{200, named(someKey), 1},
		{200, named(effect.EffectKey{9}), unclear},
		{200, `{}`, unclear},
		{200, ``, unclear},
		{200, strings.Replace(named(someKey), `"id"`, `"state":"processing","id"`, 1), unclear},
		{200, `{"code":"no_such_reward"}`, unclear},
		{200, `[` + named(someKey) + `]`, 1},
		{200, `[` + named(someKey) + `,` + named(someKey) + `]`, 2},
		{200, `[` + named(someKey) + `,` + named(effect.EffectKey{9}) + `]`, unclear},
		{200, `[]`, unclear},
		{404, `{"code":"no_such_reward"}`, 0},
		{404, `{"code":"no_such_route"}`, unclear},
		{404, ``, unclear},
		{403, `{"code":"no_such_reward"}`, unclear},
		{302, named(someKey), unclear},
		{203, named(someKey), unclear},
		{500, named(someKey), unclear},
	} {
		f, err := find(doc, someKey, answered(c.status, c.body))
		switch {
		case c.want == unclear && !errors.Is(err, adapter.ErrUnclear), c.want != unclear && (err != nil || f.Found != c.want):
			t.Errorf("%d %s: found %d, error %v; want %d", c.status, c.body, f.Found, err, c.want)
		case err != nil && strings.Contains(err.Error(), "account-1"):
			t.Errorf("the error %q repeats the body", err)
		}
	}
}

func TestAnAbsenceComesFromTheProvider(t *testing.T) {
	doc := document(t, strings.Replace(judging, ", code: no_such_reward", "", 1))
	for mediaType, body := range map[string]string{"text/html": "<h1>404</h1>", "application/json": "{"} {
		if _, err := find(doc, someKey, &reply{status: 404, mediaType: mediaType, body: []byte(body)}); !errors.Is(err, adapter.ErrUnclear) {
			t.Errorf("%s: error is %v; want ErrUnclear", mediaType, err)
		}
	}
	for mediaType, body := range map[string]string{"application/json": `{"code":"x"}`, "": ""} {
		if f, err := find(doc, someKey, &reply{status: 404, mediaType: mediaType, body: []byte(body)}); err != nil || f.Found != 0 {
			t.Errorf("%q: found %d, error %v; want an absence", body, f.Found, err)
		}
	}
}

func TestAListCountsExecutionsOfOurKeyAlone(t *testing.T) {
	doc := document(t, strings.Replace(judging, "absent:", "list: /list, absent:", 1))
	one, other := named(someKey), named(effect.EffectKey{9})
	for body, want := range map[string]uint32{
		`{"list":[]}`:                            0,
		`{"list":[` + one + `]}`:                 1,
		`{"list":[` + one + `,` + one + `]}`:     2,
		`{"list":[` + other + `]}`:               99,
		`{"list":[` + one + `,` + other + `]}`:   99,
		`{"list":[` + one + `,{}]}`:              99,
		`{"list":{}}`:                            99,
		`{"list":null}`:                          99,
		`{"other":[]}`:                           99,
		`[]`:                                     99,
		`{"list":[` + one + `,` + one + `,null]`: 99,
		`{"list":[` + strings.Repeat(one+`,`, maxListed) + one + `]}`: 99,
	} {
		f, err := find(doc, someKey, answered(200, body))
		if want == 99 && !errors.Is(err, adapter.ErrUnclear) || want != 99 && (err != nil || f.Found != want || f.Evidence.Found != want) {
			t.Errorf("%.200s: found %d, error %v; want %d", body, f.Found, err, want)
		}
	}
}

func TestAmountsAreWrittenOut(t *testing.T) {
	for text, want := range map[string]string{
		"12.50": "12.5", "0012.5": "12.5", "1250e-2": "12.5", "1.25E1": "12.5", "1.25e+1": "12.5", "-0.0": "0", "-3": "-3", "0": "0",
		"1e3": "1000", "1e-3": "0.001", "123456789012345678901234567890.10": "123456789012345678901234567890.1",
		"": "", "-": "", ".5": "", "5.": "", "1e": "", "1e999": "", "1e100": "", "1_000": "", "1,5": "", "+1": "", " 1": "", "NaN": "", "0x10": "", "--1": "",
		"1e+-5": "", strings.Repeat("9", maxDigits+1): "", strings.Repeat("9", 60) + "e99": "",
	} {
		if got, ok := plainAmount(text); ok != (want != "") || ok && got != want {
			t.Errorf("%q is %q (%t); want %q", text, got, ok, want)
		}
	}
}

func FuzzAmount(f *testing.F) {
	for _, text := range []string{"12.50", "-1250e-2", "1e99", "0.000", "1e-99"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		plain, ok := plainAmount(text)
		if !ok {
			return
		}
		want, known := new(big.Rat).SetString(text)
		got, same := new(big.Rat).SetString(plain)
		if !known || !same || want.Cmp(got) != 0 {
			t.Errorf("%q became %q", text, plain)
		}
		if again, ok := plainAmount(plain); !ok || again != plain {
			t.Errorf("%q is written as %q again", plain, again)
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add(200, named(someKey))
	f.Add(202, "{}")
	f.Add(409, `{"code":"in_flight"}`)
	f.Add(200, `{"data":{"ref":"`+someKey.String()+`","ref":1}}`)
	doc := document(f, judging)
	f.Fuzz(func(t *testing.T, status int, body string) {
		call := callTo("https://rewards.example/issue")
		got := classify(doc, &call, answered(status, body))
		if got.Class == effect.Executed && (status < 200 || status > 299 || got.Evidence.Key != someKey) && status != 0 {
			t.Errorf("status %d with %q is executed", status, body)
		}
		if found, err := find(doc, someKey, answered(status, body)); err == nil && found.Found > 0 && found.Evidence.Key != someKey {
			t.Errorf("status %d with %q is found", status, body)
		}
		if e := got.Evidence; len(e.Amount) > effect.MaxName || len(e.Subject) > effect.MaxName || len(e.Ref) > effect.MaxName {
			t.Error("evidence is too long to be recorded")
		}
	})
}

func TestNATSRepliesAreToldByTheirCode(t *testing.T) {
	doc := document(t, `kind: Adapter
name: a
version: 1
type: nats
subject: rewards.issue
evidence: {key: /ref}
reject: [{code: account_closed}]
`)
	call := callTo("nats:rewards.issue")
	for body, want := range map[string]effect.Class{
		`{"ref":"` + someKey.String() + `"}`: effect.Executed, `{"code":"account_closed"}`: effect.Refused, `{"code":"x"}`: effect.Ambiguous, "": effect.Ambiguous, "OK": effect.Ambiguous,
	} {
		if got := classify(doc, &call, &reply{mediaType: "application/json", body: []byte(body)}); got.Class != want {
			t.Errorf("%s is %s (%s); want %s", body, got.Class, got.Detail, want)
		}
	}
	doc.Reject = append(doc.Reject, policy.AnswerMatch{}) // which would be any reply
	if got := classify(doc, &call, &reply{mediaType: "application/json", body: adaptertest.Payload(someKey, "1", "a")}); got.Class != effect.Ambiguous {
		t.Errorf("a match without a code is %s", got.Class)
	}
}

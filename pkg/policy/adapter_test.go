package policy

import (
	"strings"
	"testing"
)

func TestLintRefusesInAdapters(t *testing.T) {
	field := func(text string) []string { return []string{"timeout: 20s", "timeout: 20s\n" + text} }
	query := func(rest string) []string {
		return field("query: {url: 'https://rewards.example/{effectKey}'" + rest + "}")
	}
	const (
		promise = "idempotency: {header: Idempotency-Key, retention: 24h, onBodyMismatch: error}\n"
		address = "url: https://rewards.example/v1/issue"
	)
	for _, tt := range []struct {
		rule  string // "" = fine
		line  int
		edits []string
	}{
		{"", 0, nil},
		{"", 0, []string{promise, ""}},
		{"resend-without-idempotency", 20, []string{promise, "", "timeout: 20s", "timeout: 20s\nretry: auto"}},
		{"resend-without-idempotency", 21, []string{"onBodyMismatch: error", "onBodyMismatch: execute", "timeout: 20s", "timeout: 20s\nretry: {mode: auto}"}},
		{"", 0, []string{"onBodyMismatch: error", "onBodyMismatch: execute"}},
		{"idempotency-without-retention", 18, []string{"retention: 24h, ", ""}},
		{"retention-too-short", 18, []string{"retention: 24h", "retention: 25s"}},
		{"evidence-missing", 13, []string{"evidence: {key: /ref, amount: /points}\n", ""}},
		{"retry-times", 21, field("retry: {mode: auto, first: 2h, most: 1h}")},
		{"send-unproven-needless", 21, field("sendUnproven: true")},
		{"", 0, []string{promise, "sendUnproven: true\n"}},
		{"", 0, query("")},
		{"query-by-provider-id", 21, field("query: {url: 'https://rewards.example/by-id'}")},
		{"query-by-provider-id", 21, field("query: {url: 'https://rewards.example/{effectKey}/{id}'}")},
		{"absence-without-bound", 21, query(", absence: authoritative")},
		{"", 0, query(", absence: authoritative, lateArrivalBound: 10m")},
		{"bound-without-absence", 21, query(", lateArrivalBound: 10m")},
		{"query-too-short", 21, query(", for: 25s")},
		{"timeout-out-of-range", 20, []string{"timeout: 20s", "timeout: 0s"}},
		{"timeout-out-of-range", 20, []string{"timeout: 20s", "timeout: 11m"}},
		{"send-within-out-of-range", 21, field("sendWithin: 1ms")},
		{"grace-out-of-range", 21, field("grace: 2h")},
		{"clock-uncertainty-out-of-range", 21, field("clockUncertainty: 2h")},
		{"cooldown-out-of-range", 21, field("breaker: {cooldown: 0s}")},
		{"url-invalid", 17, []string{address, "url: rewards.example"}},
		{"url-invalid", 17, []string{address, "url: ftp://rewards.example"}},
		{"url-invalid", 17, []string{address, "url: https://rewards.example:0/"}},
		{"url-not-encrypted", 17, []string{address, "url: http://rewards.example/v1"}},
		{"", 0, []string{address, "url: http://rewards.example/v1\nallow: [10.0.0.0/8]"}},
		{"url-with-credentials", 17, []string{address, "url: https://user:hunter2@rewards.example/v1"}},
		{"url-with-fragment", 17, []string{address, "url: https://rewards.example/v1#a"}},
		{"url-with-placeholder", 17, []string{address, "url: 'https://rewards.example/{effectKey}'"}},
		{"url-private-address", 17, []string{address, "url: https://10.1.2.3/v1"}},
		{"url-private-address", 17, []string{address, "url: https://localhost/v1"}},
		{"url-private-address", 17, []string{address, "url: https://169.254.169.254/latest"}},
		{"url-private-address", 17, []string{address, "url: 'https://[::ffff:127.0.0.1]/v1'"}},
		{"url-private-address", 17, []string{address, "url: 'https://[fd00::1]/v1'"}},
		{"url-private-address", 17, []string{address, "url: https://10.1.2.3/v1\nallow: [192.168.0.0/16]"}},
		{"", 0, []string{address, "url: https://10.1.2.3/v1\nallow: [10.0.0.0/8]"}},
		{"", 0, []string{address, "url: https://203.0.113.9:8443/v1"}},
		{"allow-everything", 21, field("allow: ['::/0']")},
		{"header-reserved", 21, field("headers: {Content-Type: text/plain}")},
		{"header-reserved", 21, field("headers: {X-Idempotency-Key: a}")},
		{"header-reserved", 21, []string{"header: Idempotency-Key", "header: X-Key", "timeout: 20s", "timeout: 20s\nheaders: {x-key: a}"}},
		{"header-reserved", 18, []string{"header: Idempotency-Key", "header: Content-Type"}},
		{"secret-in-document", 21, field("headers: {Authorization: Bearer abc}")},
		{"secret-in-document", 21, field("headers: {X-Api-Key: abc}")},
		{"", 0, field("headers: {Authorization: {secretFile: /run/secrets/token, prefix: 'Bearer '}, X-Tenant: shop}")},
		{"reject-in-flight", 21, field("reject: [{status: 409}]")},
		{"reject-ambiguous", 21, field("reject: [{status: 500}]")},
		{"reject-ambiguous", 21, field("reject: [{status: 429}]")},
		{"reject-ambiguous", 21, field("reject: [{status: 200, code: no}]")},
		{"throttle-ambiguous", 21, field("throttle: [{status: 500}]")},
		{"", 0, field("throttle: [{status: 429}, {status: 503}]\ninFlight: [{status: 409}]\nbodyMismatch: [{status: 422}]\npending: [{status: 202}]")},
		{"answer-in-two-lists", 22, field("reject: [{status: 422}]\nbodyMismatch: [{status: 422}]")},
		{"answer-out-of-range", 21, field("inFlight: [{status: 200}]")},
		{"answer-out-of-range", 21, field("pending: [{status: 302}]")},
		{"answer-without-status", 21, field("reject: [{code: no}]")},
		{"missing-field", 16, []string{address + "\n", ""}},
		{"field-of-other-type", 21, field("subject: a.b")},
		{"field-of-other-type", 21, field("query: {subject: a.b}")},
		{"", 0, []string{"type: http", "type: nats", address, "subject: rewards.issue", "timeout: 20s", "timeout: 20s\nquery: {subject: 'rewards.by-ref.{effectKey}', absent: [{code: none}], absence: authoritative, lateArrivalBound: 1m}\nreject: [{code: closed}]"}},
		{"subject-invalid", 17, []string{"type: http", "type: nats", address, "subject: rewards.>"}},
		{"subject-invalid", 17, []string{"type: http", "type: nats", address, "subject: 'rewards.{effectKey}'"}},
		{"subject-reserved", 17, []string{"type: http", "type: nats", address, "subject: tm.orders.events.00"}},
		{"subject-reserved", 17, []string{"type: http", "type: nats", address, "subject: $JS.API.INFO"}},
		{"missing-field", 16, []string{"type: http", "type: nats", address + "\n", ""}},
		{"field-of-other-type", 20, []string{"type: http", "type: nats", address, "subject: a", "timeout: 20s", "reject: [{status: 422, code: a}]"}},
		{"absence-without-answer", 21, []string{"type: http", "type: nats", address, "subject: a", "timeout: 20s", "timeout: 20s\nquery: {subject: a, absence: authoritative, lateArrivalBound: 1m}"}},
		{"", 0, []string{"type: http", "type: log", address + "\n", "", promise, "", "evidence: {key: /ref, amount: /points}\n", "sendUnproven: true\n"}},
		{"field-of-other-type", 18, []string{"type: http", "type: log", address + "\n", "", promise, "", "timeout: 20s", "url: https://a.example"}},
	} {
		found := Lint(effects(t, tt.edits...), nil)
		fine := tt.rule == "" && len(found) == 0
		if !fine && (len(found) == 0 || found[0].Rule != tt.rule || found[0].Line != tt.line || strings.Contains(found[0].Message, "hunter2")) {
			t.Errorf("%q: got %v, want %q in line %d", tt.edits, found, tt.rule, tt.line)
		}
	}
}

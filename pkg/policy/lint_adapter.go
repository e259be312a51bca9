package policy

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// KeyPlaceholder stands in a query's address where our effectKey goes.
const KeyPlaceholder = "{effectKey}"

// Bounds of an adapter's times.
const (
	maxTimeout    = 10 * Minute
	maxSendWithin = 10 * Minute
)

// lintAdapter refuses what an adapter cannot promise or must not do.
func lintAdapter(doc *Document) []Finding {
	var out []Finding
	refuse := func(path, rule, format string, args ...any) {
		out = append(out, doc.finding(path, rule, format, args...))
	}
	lintAdapterType(doc.Adapter, refuse)
	lintPromises(doc.Adapter, refuse)
	lintQuery(doc.Adapter, refuse)
	lintAdapterTimes(doc.Adapter, refuse)
	lintHeaders(doc.Adapter, refuse)
	lintAllow(doc.Adapter, refuse)
	lintAnswers(doc.Adapter, refuse)
	return out
}

type refusal = func(path, rule, format string, args ...any)

// lintAdapterType checks that the fields are those of the adapter's type.
func lintAdapterType(a *Adapter, refuse refusal) {
	foreign := func(path string, set bool, types ...AdapterType) {
		if set && !slices.Contains(types, a.Type) {
			words := make([]string, len(types))
			for i, t := range types {
				words[i] = string(t)
			}
			refuse(path, "field-of-other-type", "%s is a field of type: %s, not of %s; remove it", path, oneOf(words), a.Type)
		}
	}
	foreign("url", a.URL != "", AdapterHTTP)
	foreign("allow", len(a.Allow) > 0, AdapterHTTP)
	foreign("subject", a.Subject != "", AdapterNATS)
	foreign("headers", len(a.Headers) > 0, AdapterHTTP, AdapterNATS)
	foreign("idempotency", a.Idempotency.Header != "", AdapterHTTP, AdapterNATS)
	foreign("evidence", a.Evidence.Key != "", AdapterHTTP, AdapterNATS)
	foreign("query", a.Queryable(), AdapterHTTP, AdapterNATS)
	foreign("query.url", a.Query.URL != "", AdapterHTTP)
	foreign("query.subject", a.Query.Subject != "", AdapterNATS)
	switch a.Type {
	case AdapterHTTP:
		if a.URL == "" {
			refuse("type", "missing-field", "an adapter of type http needs the provider's url; add for example url: https://rewards.example/v1/issue")
			return
		}
		lintURL(a, "url", a.URL, refuse)
	case AdapterNATS:
		if a.Subject == "" {
			refuse("type", "missing-field", "an adapter of type nats needs the subject that the provider listens on; add for example subject: rewards.issue")
			return
		}
		lintSubject("subject", a.Subject, refuse)
	}
}

// lintURL checks an address that requests with payloads or keys go to.
func lintURL(a *Adapter, path, text string, refuse refusal) {
	u, err := url.Parse(strings.ReplaceAll(text, KeyPlaceholder, "KEY"))
	if err != nil || u.Hostname() == "" || u.Opaque != "" {
		refuse(path, "url-invalid", "%s is no address; write for example https://rewards.example/v1/issue", path)
		return
	}
	if u.Scheme != "https" && u.Scheme != "http" {
		refuse(path, "url-invalid", "%s begins with %s:; an adapter of type http speaks https (or http inside a network that allow names)", path, u.Scheme)
	}
	if u.Scheme == "http" && len(a.Allow) == 0 {
		refuse(path, "url-not-encrypted", "%s begins with http:, so that anybody on the way can read and change payloads; write https, or name the private network in allow", path)
	}
	if u.User != nil {
		refuse(path, "url-with-credentials", "%s holds a user name or password, which would be shown to whoever reads the document; use headers: {Authorization: {secretFile: …}}", path)
	}
	if u.Fragment != "" || strings.Contains(text, "#") {
		refuse(path, "url-with-fragment", "%s holds a part behind #, which is never sent; remove it", path)
	}
	if path == "url" && strings.ContainsAny(text, "{}") {
		refuse(path, "url-with-placeholder", "%s holds { or }, but payloads go to one fixed address; put what varies into the payload", path)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			refuse(path, "url-invalid", "%s names port %s; ports are 1 to 65535", path, port)
		}
	}
	lintHost(a, path, u.Hostname(), refuse)
}

// lintHost refuses addresses inside private networks that allow does not name. What a
// name stands for is checked when it is dialled.
func lintHost(a *Adapter, path, host string, refuse refusal) {
	address, err := netip.ParseAddr(host)
	if strings.EqualFold(host, "localhost") {
		address, err = netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	if err != nil || address.Unmap().IsGlobalUnicast() && !address.Unmap().IsPrivate() {
		return
	}
	for _, text := range a.Allow {
		if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Contains(address.Unmap()) {
			return
		}
	}
	refuse(path, "url-private-address", "%s names %s, an address inside a private network, which no adapter reaches unless it is allowed to; use another address, or add its range to allow", path, host)
}

func lintSubject(path, text string, refuse refusal) {
	for _, token := range strings.Split(strings.ReplaceAll(text, KeyPlaceholder, "KEY"), ".") {
		if token == "" || strings.ContainsAny(token, " \t*>{}") {
			refuse(path, "subject-invalid", "%s is %q; a subject has tokens between dots without spaces, * and >", path, text)
			return
		}
	}
	if head, _, _ := strings.Cut(text, "."); head == "tm" || strings.HasPrefix(head, "$") || strings.HasPrefix(head, "_INBOX") {
		refuse(path, "subject-reserved", "%s begins with %s, where the mesh or the server itself speaks; use a subject of the provider", path, head)
	}
	if path == "subject" && strings.Contains(text, KeyPlaceholder) {
		refuse(path, "subject-invalid", "%s holds %s, but payloads go to one fixed subject; every payload names its key anyway", path, KeyPlaceholder)
	}
}

// lintPromises checks idempotency, evidence, receipts and what is made of them.
func lintPromises(a *Adapter, refuse refusal) {
	i := a.Idempotency
	if i.Header != "" && i.Retention == 0 {
		refuse("idempotency", "idempotency-without-retention", "the provider is said to know keys, but not for how long: a key that it forgot would be executed again; add retention, such as 24h")
	}
	if i.Header != "" && i.Retention > 0 && i.Retention <= a.SendWithin.plus(a.Timeout) {
		refuse("idempotency.retention", "retention-too-short", "a key is known for %s, no longer than one attempt takes (sendWithin %s + timeout %s): a resend would not be recognised; leave idempotency out", i.Retention, a.SendWithin, a.Timeout)
	}
	if a.Retry.Auto && !a.Idempotent() {
		refuse("retry", "resend-without-idempotency", "the provider may execute what is sent twice, so nothing may be sent again by itself; write retry: manual, or declare idempotency that refuses or replays known keys")
	}
	if a.Retry.First <= 0 || a.Retry.Most < a.Retry.First {
		refuse("retry", "retry-times", "the first wait %s must be positive and at most the longest, %s", a.Retry.First, a.Retry.Most)
	}
	if a.Type != AdapterLog && a.Evidence.Key == "" {
		refuse("evidence", "evidence-missing", "nothing says where an answer names our effectKey, so no answer could prove that an effect ran; add evidence: {key: /ref}")
	}
	if a.SendUnproven && (a.Idempotent() || a.Queryable()) {
		refuse("sendUnproven", "send-unproven-needless", "effects of this adapter can be resent or queried, so they need no approval for that reason; remove sendUnproven")
	}
}

func lintQuery(a *Adapter, refuse refusal) {
	q := a.Query
	if !a.Queryable() {
		return
	}
	if q.URL != "" {
		if !strings.Contains(q.URL, KeyPlaceholder) {
			refuse("query.url", "query-by-provider-id", "query.url has no %s: an id that only the provider knows is lost together with its answer, and nothing could be asked then; use an address that finds an execution by our key", KeyPlaceholder)
		}
		if rest := strings.ReplaceAll(q.URL, KeyPlaceholder, ""); strings.ContainsAny(rest, "{}") {
			refuse("query.url", "query-by-provider-id", "query.url may hold %s and nothing else in braces: our key is all that is sure to be known", KeyPlaceholder)
		}
		lintURL(a, "query.url", q.URL, refuse)
	}
	if q.Subject != "" {
		lintSubject("query.subject", q.Subject, refuse)
		for i, m := range q.Absent {
			if m.Status != 0 {
				refuse(answerPath("query.absent", i), "field-of-other-type", "an answer on NATS has no status; write its code")
			}
		}
	}
	if q.Absence == AbsenceAuthoritative && q.LateArrivalBound == 0 {
		refuse("query.absence", "absence-without-bound", "finding nothing proves nothing while a request may still be on its way; add lateArrivalBound, the longest that one was seen to take, such as 10m")
	}
	if q.Absence == AbsenceAuthoritative && len(q.Absent) == 0 && q.List == "" {
		refuse("query.absence", "absence-without-answer", "nothing says which answer means that there is no execution; add absent, or list")
	}
	if q.Absence != AbsenceAuthoritative && q.LateArrivalBound > 0 {
		refuse("query.lateArrivalBound", "bound-without-absence", "lateArrivalBound has no use unless absence is authoritative; add that, or remove it")
	}
	if q.For <= a.SendWithin.plus(a.Timeout).plus(q.LateArrivalBound) {
		refuse("query.for", "query-too-short", "queries end after %s, before a late execution could be seen; write more than sendWithin, timeout and lateArrivalBound together", q.For)
	}
}

func lintAdapterTimes(a *Adapter, refuse refusal) {
	if a.Timeout < 100*Millisecond || a.Timeout > maxTimeout {
		refuse("timeout", "timeout-out-of-range", "timeout is %s; write a time from 100ms to %s", a.Timeout, maxTimeout)
	}
	if a.SendWithin < 100*Millisecond || a.SendWithin > maxSendWithin {
		refuse("sendWithin", "send-within-out-of-range", "sendWithin is %s; write a time from 100ms to %s", a.SendWithin, maxSendWithin)
	}
	if a.Grace < Second || a.Grace > Hour {
		refuse("grace", "grace-out-of-range", "grace is %s; write a time from 1s to 1h", a.Grace)
	}
	if a.ClockUncertainty > Hour {
		refuse("clockUncertainty", "clock-uncertainty-out-of-range", "clocks that are %s wrong are no use; write at most 1h", a.ClockUncertainty)
	}
	if a.Breaker.Cooldown < Second || a.Breaker.Cooldown > Day {
		refuse("breaker.cooldown", "cooldown-out-of-range", "cooldown is %s; write a time from 1s to 1d", a.Breaker.Cooldown)
	}
}

// reservedHeaders are set by the adapter itself, or belong to the connection.
var reservedHeaders = []string{
	"host", "content-type", "content-length", "connection", "keep-alive", "transfer-encoding", "te", "trailer",
	"upgrade", "expect", "accept-encoding", "traceparent", "idempotency-key", "x-idempotency-key",
}

func lintHeaders(a *Adapter, refuse refusal) {
	if slices.Contains(reservedHeaders[:12], strings.ToLower(a.Idempotency.Header)) {
		refuse("idempotency.header", "header-reserved", "header %s means something else to every server; use the one that the provider documents", a.Idempotency.Header)
	}
	for _, h := range a.Headers {
		name, path := strings.ToLower(h.Name), "headers."+h.Name
		switch {
		case strings.EqualFold(h.Name, a.Idempotency.Header):
			refuse(path, "header-reserved", "header %s carries the effectKey, as idempotency says; remove it here", h.Name)
		case slices.Contains(reservedHeaders, name), strings.HasPrefix(name, "proxy-"), strings.HasPrefix(name, "nats-"):
			refuse(path, "header-reserved", "header %s is set by the adapter or the connection; remove it here", h.Name)
		case h.SecretFile == "" && secretHeader(name):
			refuse(path, "secret-in-document", "header %s holds a secret, and documents are shown to many; write {secretFile: /run/secrets/…}", h.Name)
		}
	}
}

func secretHeader(name string) bool {
	for _, word := range []string{"auth", "cookie", "secret", "token", "api-key", "apikey", "password", "signature"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

func lintAllow(a *Adapter, refuse refusal) {
	for i, text := range a.Allow {
		if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Bits() == 0 {
			refuse("allow["+strconv.Itoa(i)+"]", "allow-everything", "%s allows every address, the ones that hand out credentials included; name the networks that the provider is in", text)
		}
	}
}

func answerPath(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// lintAnswers checks what the lists make of answers.
func lintAnswers(a *Adapter, refuse refusal) {
	seen := map[AnswerMatch]string{}
	for _, list := range a.lists() {
		for i, m := range list.answers {
			path := answerPath(list.name, i)
			if other, twice := seen[m]; twice {
				refuse(path, "answer-in-two-lists", "the same answer stands in %s; an answer means one thing", other)
			}
			seen[m] = path
			switch {
			case a.Type != AdapterHTTP && m.Status != 0:
				refuse(path, "field-of-other-type", "an answer of an adapter of type %s has no status; write its code", a.Type)
			case a.Type == AdapterHTTP && m.Status == 0:
				refuse(path, "answer-without-status", "an answer over http is told by its status first; add status")
			case a.Type == AdapterHTTP:
				lintAnswer(list.name, path, m, refuse)
			}
		}
	}
}

func lintAnswer(list, path string, m AnswerMatch, refuse refusal) {
	switch list {
	case "reject":
		switch {
		case m.Status == 409:
			refuse(path, "reject-in-flight", "409 says that the provider knows this key: something was sent before, and may run; list it under inFlight or bodyMismatch")
		case m.Status < 400 || m.Status >= 500 || slices.Contains([]int{408, 421, 423, 425, 429}, m.Status):
			refuse(path, "reject-ambiguous", "%d does not prove that nothing was executed, and a rejected effect is never sent again; list only answers that the provider gives before it executes, such as 422 with a code", m.Status)
		}
	case "throttle":
		if m.Status != 429 && m.Status != 503 {
			refuse(path, "throttle-ambiguous", "%d is no answer of a limiter that stands before execution; list only 429 and 503, and only if the provider says so", m.Status)
		}
	default:
		if m.Status < 200 || m.Status >= 300 && m.Status < 400 {
			refuse(path, "answer-out-of-range", "%d is no final answer; list answers of 200 to 299 and 400 to 599", m.Status)
		}
		if list == "inFlight" && m.Status < 300 || list == "bodyMismatch" && m.Status < 300 {
			refuse(path, "answer-out-of-range", "%d says that the request was taken; list answers of 400 to 599", m.Status)
		}
	}
}

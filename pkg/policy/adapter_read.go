package policy

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Defaults and bounds of an Adapter.
const (
	DefaultTimeout          = 20 * Second
	DefaultSendWithin       = 5 * Second
	DefaultGrace            = 30 * Second
	DefaultClockUncertainty = 5 * Second
	DefaultQueryFor         = 24 * Hour
	DefaultPerSecond        = 10
	DefaultConcurrency      = 4
	DefaultConsecutive      = 3
	DefaultBreakerWindow    = 50
	DefaultBreakerPercent   = 5
	DefaultCooldown         = 30 * Second
	DefaultRetryFirst       = 5 * Second
	DefaultRetryMost        = Hour
	// DefaultCodeAt is where an answer's code stands unless the document says otherwise.
	DefaultCodeAt = "/code"

	MaxPerSecond    = 10_000
	MaxConcurrency  = 256
	MaxAnswerRules  = 64
	MaxHeaders      = 32
	maxScopeText    = 256
	maxURLBytes     = 2048
	maxHeaderBytes  = 1024
	maxConsecutive  = 1000
	maxBreakerCount = 10_000
)

var headerName = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]{1,64}$`)

func (r *reader) adapter(o *object) *Adapter {
	r.schema(o, "adapter.v1")
	a := &Adapter{Grace: DefaultGrace}
	a.Name, a.Version = r.versioned(o, "rewards-api")
	a.Type = AdapterType(r.choice(o.required("type", "http"), "type", "", string(AdapterHTTP), string(AdapterNATS), string(AdapterLog)))
	a.URL = r.bounded(o.optional("url"), "url", maxURLBytes)
	a.Subject = r.bounded(o.optional("subject"), "subject", maxScopeText)
	a.Account = r.bounded(o.optional("account"), "account", maxScopeText)
	a.Environment = r.bounded(o.optional("environment"), "environment", maxScopeText)
	a.Allow = r.prefixes(o.optional("allow"))
	a.Headers = r.headers(o.optional("headers"))
	a.Idempotency = r.idempotency(o.optional("idempotency"))
	a.Evidence = r.evidence(o.optional("evidence"))
	a.Query = r.query(o.optional("query"))
	a.ReceiptSecrets = r.receipts(o.optional("receipts"))
	a.Timeout = r.duration(o.optional("timeout"), "timeout", DefaultTimeout)
	a.SendWithin = r.duration(o.optional("sendWithin"), "sendWithin", DefaultSendWithin)
	a.Grace = r.duration(o.optional("grace"), "grace", DefaultGrace)
	a.ClockUncertainty = r.duration(o.optional("clockUncertainty"), "clockUncertainty", DefaultClockUncertainty)
	a.Rate = r.rate(o.optional("rate"))
	a.Breaker = r.breaker(o.optional("breaker"))
	a.Retry = r.retry(o.optional("retry"), a.Idempotent())
	a.SendUnproven = r.boolean(o.optional("sendUnproven"), "sendUnproven")
	a.Reject = r.answers(o.optional("reject"), "reject")
	a.Throttle = r.answers(o.optional("throttle"), "throttle")
	a.InFlight = r.answers(o.optional("inFlight"), "inFlight")
	a.BodyMismatch = r.answers(o.optional("bodyMismatch"), "bodyMismatch")
	a.Pending = r.answers(o.optional("pending"), "pending")
	return a
}

// bounded reads text of 1 to most bytes without control characters, "" where n is nil.
func (r *reader) bounded(n *node, path string, most int) string {
	text := r.text(n, path)
	if n == nil || n.shape != shapeText {
		return ""
	}
	if text == "" || len(text) > most || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		r.refuse(n.line, "bad-value", "%s must have 1 to %d bytes without control characters; write another text, or leave it out", path, most)
		return ""
	}
	return text
}

// prefixes reads a list of CIDR ranges.
func (r *reader) prefixes(n *node) []string {
	var out []string
	for i, item := range r.list(n, "allow") {
		path := "allow[" + strconv.Itoa(i) + "]"
		text := r.text(item, path)
		if item.shape != shapeText {
			continue
		}
		r.lines[path] = item.line
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() {
			r.refuse(item.line, "bad-value", "%s is %q; write a range of addresses such as 10.1.0.0/16 or fd00::/8, with no bit set behind its length", path, text)
			continue
		}
		out = append(out, prefix.String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// headers reads {X-Tenant: shop, Authorization: {secretFile: /run/secrets/token, prefix: "Bearer "}}.
func (r *reader) headers(n *node) []Header {
	if n == nil {
		return nil
	}
	o := r.object(n, "headers")
	if o == nil {
		return nil
	}
	if len(o.fields) > MaxHeaders {
		r.refuse(n.line, "bad-value", "headers has %d members, more than %d", len(o.fields), MaxHeaders)
	}
	var out []Header
	for _, f := range o.fields {
		path := o.at(f.name)
		r.checkHeaderName(f.name, f.line, path)
		h := Header{Name: f.name}
		if f.value.shape != shapeMap {
			h.Value = r.bounded(f.value, path, maxHeaderBytes)
			out = append(out, h)
			continue
		}
		if secret := r.object(f.value, path); secret != nil {
			h.SecretFile = r.secretFile(secret.required("secretFile", "/run/secrets/token"), path+".secretFile")
			if prefix := secret.optional("prefix"); prefix != nil {
				h.Prefix = r.bounded(prefix, path+".prefix", maxScopeText)
			}
			secret.finish()
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b Header) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (r *reader) checkHeaderName(name string, line int, path string) {
	if !headerName.MatchString(name) {
		r.refuse(line, "bad-name", "%s: %q is no name of a header; it must have 1 to 64 letters, digits or -", path, name)
	}
}

// secretFile reads the absolute path of a file with a secret; n may be nil.
func (r *reader) secretFile(n *node, path string) string {
	text := r.bounded(n, path, maxHeaderBytes)
	if text != "" && (!strings.HasPrefix(text, "/") || strings.HasSuffix(text, "/")) {
		r.refuse(n.line, "bad-value", "%s is %q; write the absolute path of a file, such as /run/secrets/token", path, text)
	}
	return text
}

func (r *reader) idempotency(n *node) Idempotency {
	if n == nil {
		return Idempotency{}
	}
	o := r.object(n, "idempotency")
	if o == nil {
		return Idempotency{}
	}
	header := o.required("header", "Idempotency-Key")
	out := Idempotency{Header: r.text(header, "idempotency.header")}
	if header != nil && header.shape == shapeText {
		r.checkHeaderName(out.Header, header.line, "idempotency.header")
	}
	out.Retention = r.duration(o.optional("retention"), "idempotency.retention", 0)
	out.Basis = Basis(r.choice(o.optional("basis"), "idempotency.basis", string(BasisFirstSeen), string(BasisFirstSeen), string(BasisLastSeen), string(BasisCompletion)))
	out.OnBodyMismatch = BodyMismatch(r.choice(o.required("onBodyMismatch", "error"), "idempotency.onBodyMismatch", string(MismatchExecute), string(MismatchError), string(MismatchReplay), string(MismatchExecute)))
	o.finish()
	return out
}

// evidence reads {key: /ref, amount: /points, subject: {answer: /data/account, payload: /account}}.
func (r *reader) evidence(n *node) EvidenceMap {
	if n == nil {
		return EvidenceMap{}
	}
	o := r.object(n, "evidence")
	if o == nil {
		return EvidenceMap{}
	}
	e := EvidenceMap{Key: r.pointer(o.required("key", "/ref"), "evidence.key"), Ref: r.pointer(o.optional("ref"), "evidence.ref")}
	e.Amount, e.ExpectAmount = r.named(o.optional("amount"), "evidence.amount")
	e.Subject, e.ExpectSubject = r.named(o.optional("subject"), "evidence.subject")
	o.finish()
	return e
}

// named reads where an answer names a member of the payload, and which member; n may be nil.
func (r *reader) named(n *node, path string) (answer, payload string) {
	if n == nil {
		return "", ""
	}
	if n.shape != shapeMap {
		answer = r.pointer(n, path)
		return answer, answer
	}
	o := r.object(n, path)
	if o == nil {
		return "", ""
	}
	answer = r.pointer(o.required("answer", "/data/points"), path+".answer")
	payload = answer
	if written := o.optional("payload"); written != nil {
		payload = r.pointer(written, path+".payload")
	}
	o.finish()
	return answer, payload
}

func (r *reader) query(n *node) Query {
	if n == nil {
		return Query{}
	}
	o := r.object(n, "query")
	if o == nil {
		return Query{}
	}
	q := Query{
		URL:     r.bounded(o.optional("url"), "query.url", maxURLBytes),
		Subject: r.bounded(o.optional("subject"), "query.subject", maxScopeText),
		List:    r.pointer(o.optional("list"), "query.list"),
		Absent:  r.answers(o.optional("absent"), "query.absent"),
		Absence: Absence(r.choice(o.optional("absence"), "query.absence", string(AbsenceUnproven), string(AbsenceUnproven), string(AbsenceAuthoritative))),
		For:     r.duration(o.optional("for"), "query.for", DefaultQueryFor),
	}
	q.LateArrivalBound = r.duration(o.optional("lateArrivalBound"), "query.lateArrivalBound", 0)
	if (q.URL == "") == (q.Subject == "") {
		r.refuse(n.line, "missing-field", "query needs one of url (http) and subject (nats); write for example url: 'https://rewards.example/v1/by-ref/{effectKey}'")
	}
	if q.Absent == nil && q.Subject == "" {
		q.Absent = []AnswerMatch{{Status: 404}}
	}
	o.finish()
	return q
}

// receipts reads {secretFile: /run/secrets/receipts}.
func (r *reader) receipts(n *node) string {
	if n == nil {
		return ""
	}
	o := r.object(n, "receipts")
	if o == nil {
		return ""
	}
	secret := o.optional("secretFile")
	if secret == nil {
		r.refuse(n.line, "receipts-unsigned", "receipts without a secret would let anybody say that an effect ran; add secretFile, a file with one or more whsec_ secrets")
	}
	file := r.secretFile(secret, "receipts.secretFile")
	o.finish()
	return file
}

func (r *reader) rate(n *node) Rate {
	out := Rate{PerSecond: DefaultPerSecond, Concurrency: DefaultConcurrency}
	if n == nil {
		return out
	}
	o := r.object(n, "rate")
	if o == nil {
		return out
	}
	out.PerSecond = int(r.integer(o.optional("perSecond"), "rate.perSecond", 1, MaxPerSecond, DefaultPerSecond))
	out.Concurrency = int(r.integer(o.optional("concurrency"), "rate.concurrency", 1, MaxConcurrency, DefaultConcurrency))
	o.finish()
	return out
}

func (r *reader) breaker(n *node) Breaker {
	out := Breaker{Consecutive: DefaultConsecutive, Window: DefaultBreakerWindow, Percent: DefaultBreakerPercent, Cooldown: DefaultCooldown}
	if n == nil {
		return out
	}
	o := r.object(n, "breaker")
	if o == nil {
		return out
	}
	out.Consecutive = int(r.integer(o.optional("consecutive"), "breaker.consecutive", 1, maxConsecutive, DefaultConsecutive))
	out.Window = int(r.integer(o.optional("window"), "breaker.window", 1, maxBreakerCount, DefaultBreakerWindow))
	out.Percent = int(r.integer(o.optional("percent"), "breaker.percent", 0, 100, DefaultBreakerPercent))
	out.Cooldown = r.duration(o.optional("cooldown"), "breaker.cooldown", DefaultCooldown)
	o.finish()
	return out
}

// retry reads auto or manual, or {mode: auto, first: 5s, most: 1h}. Without it effects are
// sent again where the provider's idempotency allows it.
func (r *reader) retry(n *node, idempotent bool) Retry {
	out := Retry{Auto: idempotent, First: DefaultRetryFirst, Most: DefaultRetryMost}
	if n == nil {
		return out
	}
	if n.shape == shapeText {
		out.Auto = r.choice(n, "retry", "manual", "auto", "manual") == "auto"
		return out
	}
	o := r.object(n, "retry")
	if o == nil {
		return out
	}
	out.Auto = r.choice(o.required("mode", "auto"), "retry.mode", "manual", "auto", "manual") == "auto"
	out.First = r.duration(o.optional("first"), "retry.first", DefaultRetryFirst)
	out.Most = r.duration(o.optional("most"), "retry.most", max(out.First, DefaultRetryMost))
	o.finish()
	return out
}

// answers reads [{status: 422, code: account_closed, at: /code}].
func (r *reader) answers(n *node, path string) []AnswerMatch {
	items := r.list(n, path)
	if len(items) > MaxAnswerRules {
		r.refuse(n.line, "bad-value", "%s has %d items, more than %d", path, len(items), MaxAnswerRules)
	}
	var out []AnswerMatch
	for i, item := range items {
		at := path + "[" + strconv.Itoa(i) + "]"
		o := r.object(item, at)
		if o == nil {
			continue
		}
		r.lines[at] = item.line
		m := AnswerMatch{Status: int(r.integer(o.optional("status"), at+".status", 100, 599, 0))}
		pointer := o.optional("at")
		if code := o.optional("code"); code != nil {
			m.Code, m.At = r.code(code, at+".code"), DefaultCodeAt
			if pointer != nil {
				m.At = r.pointer(pointer, at+".at")
			}
		} else if pointer != nil {
			r.refuse(pointer.line, "bad-value", "%s.at says where a code stands, but there is none; add code, or remove at", at)
		}
		if m.Status == 0 && m.Code == "" {
			r.refuse(item.line, "missing-field", "%s names no answer; write a status, a code or both, for example {status: 422, code: account_closed}", at)
		}
		o.finish()
		if slices.Contains(out, m) {
			r.refuse(item.line, "duplicate-answer", "%s is listed twice; keep one", at)
		}
		out = append(out, m)
	}
	return out
}

// code reads text or a whole number, as it stands in an answer.
func (r *reader) code(n *node, path string) string {
	if n.shape == shapeInt {
		return n.text
	}
	return r.bounded(n, path, maxScopeText)
}

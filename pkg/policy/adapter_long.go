package policy

func (a *Adapter) long() []field {
	out := []field{
		{"apiVersion", APIVersion},
		{"kind", KindAdapter},
		{"name", a.Name},
		{"version", a.Version},
		{"type", string(a.Type)},
	}
	for _, f := range []field{{"url", a.URL}, {"subject", a.Subject}, {"account", a.Account}, {"environment", a.Environment}} {
		if f.value != "" {
			out = append(out, f)
		}
	}
	if len(a.Allow) > 0 {
		out = append(out, field{"allow", a.Allow})
	}
	if len(a.Headers) > 0 {
		out = append(out, field{"headers", headersLong(a.Headers)})
	}
	if i := a.Idempotency; i.Header != "" {
		idempotency := []field{{"header", i.Header}, {"basis", string(i.Basis)}, {"onBodyMismatch", string(i.OnBodyMismatch)}}
		if i.Retention > 0 {
			idempotency = append(idempotency, field{"retention", i.Retention.String()})
		}
		out = append(out, field{"idempotency", idempotency})
	}
	if a.Evidence.Key != "" {
		out = append(out, field{"evidence", a.Evidence.long()})
	}
	if a.Queryable() {
		out = append(out, field{"query", a.Query.long()})
	}
	if a.ReceiptSecrets != "" {
		out = append(out, field{"receipts", []field{{"secretFile", a.ReceiptSecrets}}})
	}
	mode := "manual"
	if a.Retry.Auto {
		mode = "auto"
	}
	out = append(out,
		field{"timeout", a.Timeout.String()},
		field{"sendWithin", a.SendWithin.String()},
		field{"grace", a.Grace.String()},
		field{"clockUncertainty", a.ClockUncertainty.String()},
		field{"rate", []field{{"perSecond", a.Rate.PerSecond}, {"concurrency", a.Rate.Concurrency}}},
		field{"breaker", []field{{"consecutive", a.Breaker.Consecutive}, {"window", a.Breaker.Window}, {"percent", a.Breaker.Percent}, {"cooldown", a.Breaker.Cooldown.String()}}},
		field{"retry", []field{{"mode", mode}, {"first", a.Retry.First.String()}, {"most", a.Retry.Most.String()}}},
		field{"sendUnproven", a.SendUnproven},
	)
	for _, list := range a.lists() {
		if len(list.answers) > 0 {
			out = append(out, field{list.name, answersLong(list.answers)})
		}
	}
	return out
}

// answerList is one of the adapter's lists of answers.
type answerList struct {
	name    string
	answers []AnswerMatch
}

func (a *Adapter) lists() []answerList {
	return []answerList{{"reject", a.Reject}, {"throttle", a.Throttle}, {"inFlight", a.InFlight}, {"bodyMismatch", a.BodyMismatch}, {"pending", a.Pending}}
}

func headersLong(headers []Header) []field {
	var out []field
	for _, h := range headers {
		if h.SecretFile == "" {
			out = append(out, field{h.Name, h.Value})
			continue
		}
		secret := []field{{"secretFile", h.SecretFile}}
		if h.Prefix != "" {
			secret = append(secret, field{"prefix", h.Prefix})
		}
		out = append(out, field{h.Name, secret})
	}
	return out
}

func (e EvidenceMap) long() []field {
	out := []field{{"key", e.Key}}
	if e.Amount != "" {
		out = append(out, field{"amount", []field{{"answer", e.Amount}, {"payload", e.ExpectAmount}}})
	}
	if e.Subject != "" {
		out = append(out, field{"subject", []field{{"answer", e.Subject}, {"payload", e.ExpectSubject}}})
	}
	if e.Ref != "" {
		out = append(out, field{"ref", e.Ref})
	}
	return out
}

func (q Query) long() []field {
	var out []field
	for _, f := range []field{{"url", q.URL}, {"subject", q.Subject}, {"list", q.List}} {
		if f.value != "" {
			out = append(out, f)
		}
	}
	if len(q.Absent) > 0 {
		out = append(out, field{"absent", answersLong(q.Absent)})
	}
	return append(out,
		field{"absence", string(q.Absence)},
		field{"lateArrivalBound", q.LateArrivalBound.String()},
		field{"for", q.For.String()},
	)
}

func answersLong(answers []AnswerMatch) [][]field {
	var out [][]field
	for _, m := range answers {
		var item []field
		if m.Status != 0 {
			item = append(item, field{"status", m.Status})
		}
		if m.Code != "" {
			item = append(item, field{"code", m.Code}, field{"at", m.At})
		}
		out = append(out, item)
	}
	return out
}

package admission

import (
	"errors"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// maxKey bounds a joined key in bytes.
const maxKey = 256

// joinKey builds the key: strings as they are, integers and booleans as their JSON text,
// "/" and "%" in them written %2F and %25, parts joined by "/". An empty string is a
// part like any other as long as the whole key is not empty.
func (a *Admitter) joinKey(data envelope.Node, ev *envelope.Event) *Refusal {
	if len(a.keys) == 1 {
		n, refusal := a.keyPart(data, &a.keys[0])
		if refusal != nil {
			return refusal
		}
		if key := a.doc.Text(n); 0 < len(key) && len(key) <= maxKey && strings.IndexByte(key, '/') < 0 && strings.IndexByte(key, '%') < 0 {
			ev.Key = key
			return nil
		}
	}
	joined := a.scratch[:0]
	for i := range a.keys {
		n, refusal := a.keyPart(data, &a.keys[i])
		if refusal != nil {
			return refusal
		}
		if i > 0 {
			joined = append(joined, '/')
		}
		for _, c := range a.doc.TextBytes(n) {
			switch c {
			case '/':
				joined = append(joined, "%2F"...)
			case '%':
				joined = append(joined, "%25"...)
			default:
				joined = append(joined, c)
			}
		}
		a.scratch = joined
		if len(joined) > maxKey {
			return refuse(KeyTooLong, "the key has more than %d bytes", maxKey)
		}
	}
	if len(joined) == 0 {
		return refuse(MissingKey, "the key is empty")
	}
	slot := &a.joined[fnv1a(joined)%keyCache]
	if *slot != string(joined) {
		*slot = string(joined)
	}
	ev.Key = *slot
	return nil
}

func (a *Admitter) keyPart(data envelope.Node, path *envelope.Pointer) (envelope.Node, *Refusal) {
	n, found := a.lookup(data, path)
	if !found {
		return 0, refuse(MissingKey, "nothing stands at %s", path)
	}
	switch kind := a.doc.Kind(n); {
	case kind == envelope.String, kind == envelope.True, kind == envelope.False:
	case kind == envelope.Number && integer(a.doc.Raw(n)):
	default:
		return 0, refuse(MissingKey, "%.64s at %s is neither a string nor an integer nor a boolean", a.doc.Raw(n), path)
	}
	return n, nil
}

// lookup answers where path points to in the data; null counts as nothing.
func (a *Admitter) lookup(data envelope.Node, path *envelope.Pointer) (envelope.Node, bool) {
	if data < 0 {
		return 0, false
	}
	n, found := a.doc.Lookup(data, path)
	return n, found && a.doc.Kind(n) != envelope.Null
}

// readTimes reads one event time per extractor and checks it against the stream's bounds.
func (a *Admitter) readTimes(data envelope.Node, now envelope.IngestTime, ev *envelope.Event) *Refusal {
	latest := envelope.EventTime(now).Add(int64(a.stream.MaxFuture))
	for i := range a.times {
		x, path := &a.stream.Extractors[i], &a.times[i]
		n, found := a.lookup(data, path)
		if !found {
			return refuse(MissingEventTime, "event time %s: nothing stands at %s", x.Name, path)
		}
		t, why := a.eventTime(n, x.Format)
		switch {
		case why != "":
			return refuse(EventTimeFormat, "event time %s at %s: %.64s %s", x.Name, path, a.doc.Raw(n), why)
		case t > latest || t == envelope.MaxEventTime:
			return refuse(EventTimeOutOfRange, "event time %s at %s: %s is later than arrival plus maxFuture, %s", x.Name, path, t, latest)
		case t < a.stream.NotBefore || t == envelope.MinEventTime:
			return refuse(EventTimeOutOfRange, "event time %s at %s: %s is before notBefore, %s", x.Name, path, t, a.stream.NotBefore)
		}
		ev.Times = append(ev.Times, t)
	}
	return nil
}

// eventTime reads one event time; why says what is wrong with it. Unix times may stand
// as a JSON number or as a string that holds one.
func (a *Admitter) eventTime(n envelope.Node, format policy.TimeFormat) (t envelope.EventTime, why string) {
	kind := a.doc.Kind(n)
	text := a.doc.TextBytes(n)
	if format == policy.RFC3339 {
		if kind != envelope.String {
			return 0, "is no string with an RFC 3339 time such as 2026-11-30T10:00:00Z"
		}
		t, fine, ok := envelope.ParseRFC3339(text)
		switch {
		case !ok:
			return 0, "is no RFC 3339 time such as 2026-11-30T10:00:00Z"
		case fine:
			return 0, "is finer than a microsecond"
		}
		return t, ""
	}
	if kind != envelope.String && kind != envelope.Number {
		return 0, "is neither a number nor a string with a number"
	}
	scale := 0
	switch format {
	case policy.UnixS:
		scale = 6
	case policy.UnixMs:
		scale = 3
	}
	micros, err := envelope.ParseDecimal(text, scale)
	switch {
	case errors.Is(err, envelope.ErrNumberPrecision):
		return 0, "is finer than a microsecond"
	case errors.Is(err, envelope.ErrNumberRange) && text[0] == '-':
		return envelope.MinEventTime, "" // out of every range
	case errors.Is(err, envelope.ErrNumberRange):
		return envelope.MaxEventTime, ""
	case err != nil:
		return 0, "as " + string(format) + ": " + err.Error()
	}
	return envelope.EventTime(micros), ""
}

// readValues reads every declared value. Decimals and integers may stand as JSON numbers
// or as strings that hold one: rows of CSV have nothing else.
func (a *Admitter) readValues(data envelope.Node, ev *envelope.Event) *Refusal {
	for i := range a.values {
		spec, path := &a.stream.Values[i], &a.values[i]
		n, found := a.lookup(data, path)
		if !found {
			return refuse(ValueFormat, "value %s: nothing stands at %s", spec.Name, path)
		}
		kind := a.doc.Kind(n)
		if spec.Type == policy.String {
			if kind != envelope.String {
				return refuse(ValueFormat, "value %s at %s: %.64s is no string", spec.Name, path, a.doc.Raw(n))
			}
			ev.Values = append(ev.Values, envelope.Value{Text: a.doc.Text(n)})
			continue
		}
		if kind != envelope.String && kind != envelope.Number {
			return refuse(ValueFormat, "value %s at %s: %.64s is neither a number nor a string with a number", spec.Name, path, a.doc.Raw(n))
		}
		scale := 0
		if spec.Type == policy.Decimal {
			scale = spec.Scale
		}
		number, err := envelope.ParseDecimal(a.doc.TextBytes(n), scale)
		switch {
		case errors.Is(err, envelope.ErrNumberPrecision):
			return refuse(ValuePrecision, "value %s at %s: %.64s has more than %d decimals", spec.Name, path, a.doc.Raw(n), scale)
		case err != nil:
			return refuse(ValueFormat, "value %s at %s: %.64s: %v", spec.Name, path, a.doc.Raw(n), err)
		}
		ev.Values = append(ev.Values, envelope.Value{Int: number})
	}
	return nil
}

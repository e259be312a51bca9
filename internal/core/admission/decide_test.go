package admission_test

import (
	"bytes"
	"compress/gzip"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

func orders() *policy.BusinessStream {
	return &policy.BusinessStream{
		Name: "orders", Partitions: 8, Key: []string{"/order/region"}, MaxEventBytes: 256 << 10,
		Values:     []policy.ValueSpec{{Name: "amount", Path: "/order/amount", Type: policy.Decimal, Scale: 2}},
		Extractors: []policy.Extractor{{Name: "order.occurred_at@2", Path: "/order/occurred_at", Format: policy.RFC3339}},
		MaxFuture:  5 * policy.Minute, NotBefore: envelope.EventTime(mustTime("2020-01-01T00:00:00Z")),
		SchemaGeneration: 3, Retractions: true,
	}
}

// order is a plain record with its parts as JSON; "" leaves a part out.
func order(id, region, amount, at string) string {
	var outer, inner []string
	if id != "" {
		outer = append(outer, `"id":`+id)
	}
	for _, m := range [][2]string{{"region", region}, {"amount", amount}, {"occurred_at", at}} {
		if m[1] != "" {
			inner = append(inner, `"`+m[0]+`":`+m[1])
		}
	}
	outer = append(outer, `"order":{`+strings.Join(inner, ",")+`}`)
	return "{" + strings.Join(outer, ",") + "}"
}

const at = `"2026-11-30T10:15:00Z"`

func plain(src string) admission.Item {
	return admission.Item{Format: admission.Plain, Bytes: []byte(src), Source: "shop"}
}

func cloud(attributes string) admission.Item {
	return admission.Item{Format: admission.CloudEvent, Source: "shop", Bytes: []byte(
		`{"specversion":"1.0","type":"order",` + attributes + `,"data":` + order("", `"eu-west"`, "1", at) + `}`)}
}

func padded(size int) string {
	src := order(`"a"`, `"eu"`, "1", at)
	return src + strings.Repeat(" ", size-len(src))
}

func TestDecideReasons(t *testing.T) {
	good := order(`"a"`, `"eu"`, "1", at)
	deep := func(depth int) string { // the object itself is one level
		return good[:len(good)-1] + `,"x":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + "}"
	}
	for _, c := range []struct {
		name string
		item admission.Item
		want admission.Reason // "" = accepted
	}{
		{"good", plain(good), ""},
		{"as large as allowed", plain(padded(256 << 10)), ""},
		{"one byte too large", plain(padded(256<<10 + 1)), admission.TooLarge},
		{"too large comes before malformed", plain(strings.Repeat("x", 256<<10+1)), admission.TooLarge},
		{"depth 64", plain(deep(64)), ""},
		{"depth 65", plain(deep(65)), admission.TooDeep},
		{"depth 100000", plain(strings.Repeat("[", 100_000)), admission.TooDeep},

		{"empty", plain(""), admission.MalformedJSON},
		{"byte order mark", plain("\xef\xbb\xbf" + good), admission.MalformedJSON},
		{"NaN", plain(order(`"a"`, `"eu"`, "NaN", at)), admission.MalformedJSON},
		{"Infinity", plain(order(`"a"`, `"eu"`, "-Infinity", at)), admission.MalformedJSON},
		{"lone surrogate", plain(order(`"\ud800"`, `"eu"`, "1", at)), admission.MalformedJSON},
		{"invalid UTF-8", plain(order("\"\xff\"", `"eu"`, "1", at)), admission.MalformedJSON},
		{"trailing bytes", plain(good + "{}"), admission.MalformedJSON},
		{"duplicate", plain(good[:len(good)-1] + `,"id":"b"}`), admission.DuplicateField},
		{"case twin", plain(good[:len(good)-1] + `,"ID":"b"}`), admission.DuplicateField},
		{"case twin below", plain(good[:len(good)-2] + `,"Amount":2}}`), admission.DuplicateField},
		{"malformed comes before duplicate", plain(good[:len(good)-1] + `,"id":"b"`), admission.MalformedJSON},

		{"no id", plain(order("", `"eu"`, "1", at)), admission.MissingID},
		{"null id", plain(order("null", `"eu"`, "1", at)), admission.MissingID},
		{"empty id", plain(order(`""`, `"eu"`, "1", at)), admission.MissingID},
		{"object id", plain(order("{}", `"eu"`, "1", at)), admission.MissingID},
		{"boolean id", plain(order("true", `"eu"`, "1", at)), admission.MissingID},
		{"fraction id", plain(order("1.5", `"eu"`, "1", at)), admission.MissingID},
		{"exponent id", plain(order("1e3", `"eu"`, "1", at)), admission.MissingID},
		{"integer id", plain(order("-42", `"eu"`, "1", at)), ""},
		{"huge integer id", plain(order(strings.Repeat("9", 100), `"eu"`, "1", at)), ""},
		{"id of 1024 bytes", plain(order(`"`+strings.Repeat("i", 1024)+`"`, `"eu"`, "1", at)), ""},
		{"id of 1025 bytes", plain(order(`"`+strings.Repeat("i", 1025)+`"`, `"eu"`, "1", at)), admission.MalformedJSON},
		{"no object", plain(`[1]`), admission.MissingID},
		{"bad id path", admission.Item{Format: admission.Plain, Bytes: []byte(good), Source: "shop", IDPath: "id"}, admission.MissingID},
		{"other id path", admission.Item{Format: admission.Plain, Bytes: []byte(good), Source: "shop", IDPath: "/order/region"}, ""},
		{"id comes before key", plain(`{"order":{}}`), admission.MissingID},

		{"no source", admission.Item{Format: admission.Plain, Bytes: []byte(good)}, admission.UnknownPartition},

		{"no key", plain(order(`"a"`, "", "1", at)), admission.MissingKey},
		{"null key", plain(order(`"a"`, "null", "1", at)), admission.MissingKey},
		{"empty key", plain(order(`"a"`, `""`, "1", at)), admission.MissingKey},
		{"object key", plain(order(`"a"`, `{"x":1}`, "1", at)), admission.MissingKey},
		{"array key", plain(order(`"a"`, `["x"]`, "1", at)), admission.MissingKey},
		{"fraction key", plain(order(`"a"`, `1.5`, "1", at)), admission.MissingKey},
		{"key of 256 bytes", plain(order(`"a"`, `"`+strings.Repeat("k", 256)+`"`, "1", at)), ""},
		{"key of 257 bytes", plain(order(`"a"`, `"`+strings.Repeat("k", 257)+`"`, "1", at)), admission.KeyTooLong},
		{"key of 256 bytes after escaping", plain(order(`"a"`, `"`+strings.Repeat("k", 253)+`/"`, "1", at)), ""},
		{"key of 257 bytes after escaping", plain(order(`"a"`, `"`+strings.Repeat("k", 254)+`/"`, "1", at)), admission.KeyTooLong},
		{"key comes before event time", plain(order(`"a"`, "", "1", "")), admission.MissingKey},

		{"no event time", plain(order(`"a"`, `"eu"`, "1", "")), admission.MissingEventTime},
		{"null event time", plain(order(`"a"`, `"eu"`, "1", "null")), admission.MissingEventTime},
		{"number as RFC 3339", plain(order(`"a"`, `"eu"`, "1", "1796032800")), admission.EventTimeFormat},
		{"finer than a microsecond", plain(order(`"a"`, `"eu"`, "1", `"2026-11-30T10:15:00.0000001Z"`)), admission.EventTimeFormat},
		{"finer by eleven digits", plain(order(`"a"`, `"eu"`, "1", `"2026-11-30T10:15:00.00000000001Z"`)), admission.EventTimeFormat},
		{"microsecond", plain(order(`"a"`, `"eu"`, "1", `"2026-11-30T10:15:00.000001Z"`)), ""},
		{"infinity", plain(order(`"a"`, `"eu"`, "1", `"+inf"`)), admission.EventTimeFormat},
		{"date only", plain(order(`"a"`, `"eu"`, "1", `"2026-11-30"`)), admission.EventTimeFormat},
		{"event time comes before value", plain(order(`"a"`, `"eu"`, `"x"`, "")), admission.MissingEventTime},

		// Case G10: arrival is 10:20, maxFuture 5 minutes.
		{"exactly maxFuture ahead", plain(order(`"a"`, `"eu"`, "1", `"2026-11-30T10:25:00Z"`)), ""},
		{"one microsecond beyond", plain(order(`"a"`, `"eu"`, "1", `"2026-11-30T10:25:00.000001Z"`)), admission.EventTimeOutOfRange},
		{"one millisecond beyond", plain(order(`"a"`, `"eu"`, "1", `"2026-11-30T10:25:00.001Z"`)), admission.EventTimeOutOfRange},
		{"exactly notBefore", plain(order(`"a"`, `"eu"`, "1", `"2020-01-01T00:00:00Z"`)), ""},
		{"one microsecond before", plain(order(`"a"`, `"eu"`, "1", `"2019-12-31T23:59:59.999999Z"`)), admission.EventTimeOutOfRange},

		{"no value", plain(order(`"a"`, `"eu"`, "", at)), admission.ValueFormat},
		{"null value", plain(order(`"a"`, `"eu"`, "null", at)), admission.ValueFormat},
		{"boolean value", plain(order(`"a"`, `"eu"`, "true", at)), admission.ValueFormat},
		{"text value", plain(order(`"a"`, `"eu"`, `"12,50"`, at)), admission.ValueFormat},
		{"empty value", plain(order(`"a"`, `"eu"`, `""`, at)), admission.ValueFormat},
		{"1e999", plain(order(`"a"`, `"eu"`, "1e999", at)), admission.ValueFormat},
		{"huge integer", plain(order(`"a"`, `"eu"`, strings.Repeat("9", 1000), at)), admission.ValueFormat},
		{"value as string", plain(order(`"a"`, `"eu"`, `"12.50"`, at)), ""},
		{"value with exponent", plain(order(`"a"`, `"eu"`, "1.25e1", at)), ""},
		{"trailing zeros", plain(order(`"a"`, `"eu"`, "12.500", at)), ""},
		{"too precise", plain(order(`"a"`, `"eu"`, "12.505", at)), admission.ValuePrecision},
		{"too precise as string", plain(order(`"a"`, `"eu"`, `"12.505"`, at)), admission.ValuePrecision},

		{"cloud event", cloud(`"id":"a","source":"shop"`), ""},
		{"no cloud event id", cloud(`"source":"shop"`), admission.MissingID},
		{"other source", cloud(`"id":"a","source":"till"`), admission.UnknownPartition},
		{"same partition", cloud(`"id":"a","source":"shop","sourcepartition":2`), ""},
		{"other partition", cloud(`"id":"a","source":"shop","sourcepartition":3`), admission.UnknownPartition},
		{"no cloud event source", cloud(`"id":"a"`), admission.MalformedJSON},
		{"unknown op", cloud(`"id":"a","source":"shop","op":"delete"`), admission.MalformedJSON},
		{"both data", cloud(`"id":"a","source":"shop","data_base64":"MQ=="`), admission.DuplicateField},
		{"schema 3", cloud(`"id":"a","source":"shop","dataschema":"3"`), ""},
		{"schema path", cloud(`"id":"a","source":"shop","dataschema":"https://x.example/order/3"`), ""},
		{"schema fragment", cloud(`"id":"a","source":"shop","dataschema":"urn:order#3"`), ""},
		{"schema 2", cloud(`"id":"a","source":"shop","dataschema":"2"`), admission.SchemaGeneration},
		{"schema 13", cloud(`"id":"a","source":"shop","dataschema":"13"`), admission.SchemaGeneration},
		{"schema path 13", cloud(`"id":"a","source":"shop","dataschema":"https://x.example/13"`), admission.SchemaGeneration},
		{"schema 3.1", cloud(`"id":"a","source":"shop","dataschema":"https://x.example/3.1"`), admission.SchemaGeneration},
		{"schema comes before source", cloud(`"id":"a","source":"till","dataschema":"2"`), admission.SchemaGeneration},
		{"retraction", cloud(`"id":"b","source":"shop","op":"retract","withdraws":"a"`), ""},
		{"retraction of nothing", cloud(`"id":"b","source":"shop","op":"retract"`), admission.RetractTarget},
		{"retraction of itself", cloud(`"id":"b","source":"shop","op":"retract","withdraws":"b"`), admission.RetractTarget},
		{"withdraws without op", cloud(`"id":"b","source":"shop","withdraws":"a"`), admission.RetractTarget},
		{"no data", admission.Item{Format: admission.CloudEvent, Source: "shop", Bytes: []byte(`{"specversion":"1.0","id":"1","source":"shop","type":"t"}`)}, admission.MissingKey},
		{"unknown format", admission.Item{Format: 9, Bytes: []byte(good), Source: "shop"}, admission.MalformedJSON},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ev envelope.Event
			check(t, admission.New(orders()).Decide(c.item, 2, arrival, &ev), c.want)
		})
	}
}

func check(t *testing.T, refusal *admission.Refusal, want admission.Reason) {
	t.Helper()
	switch {
	case refusal == nil && want != "":
		t.Errorf("accepted, want %s", want)
	case refusal != nil && (refusal.Reason != want || refusal.Rule == ""):
		t.Errorf("refused with %s: %s; want %q", refusal.Reason, refusal.Rule, want)
	}
}

func TestDecideRetractionsMayBeOff(t *testing.T) {
	bs := orders()
	bs.Retractions = false
	var ev envelope.Event
	check(t, admission.New(bs).Decide(cloud(`"id":"b","source":"shop","op":"retract"`), 0, arrival, &ev), admission.RetractNotAllowed)
}

func TestDecideAnyGenerationWhenNoneIsDeclared(t *testing.T) {
	bs := orders()
	bs.SchemaGeneration = 0
	var ev envelope.Event
	check(t, admission.New(bs).Decide(cloud(`"id":"b","source":"shop","dataschema":"x/99"`), 0, arrival, &ev), "")
}

func TestDecideFillsTheEvent(t *testing.T) {
	var ev envelope.Event
	src := "  " + order(`"o-1"`, `"eu/west"`, "12.5", `"2026-11-30T11:15:00.25+01:00"`) + "\n"
	check(t, admission.New(orders()).Decide(plain(src), 2, arrival, &ev), "")
	digest, err := envelope.DigestJSON([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	if ev.ID != "o-1" || ev.Source != "shop" || ev.Key != "eu%2Fwest" || ev.SourcePartition != 2 || ev.Digest != digest ||
		len(ev.Times) != 1 || ev.Times[0] != 1796033700250000 || len(ev.Values) != 1 || ev.Values[0].Int != 1250 ||
		string(ev.Data) != strings.TrimSpace(src) {
		t.Errorf("got %+v", ev)
	}

	item := admission.Item{Format: admission.Binary, Source: "shop", Bytes: []byte(order("", `"eu"`, "1", at)), Header: map[string]string{
		"specversion": "1.0", "id": "r-1", "source": "shop", "type": "order.refunded", "subject": "o-1", "op": "retract",
		"withdraws": "o-1", "origin": "replay", "dataschema": "3", "unheard": "of",
	}}
	check(t, admission.New(orders()).Decide(item, 0, arrival, &ev), "")
	if ev.ID != "r-1" || ev.Op != envelope.Retract || ev.Withdraws != "o-1" || ev.Origin != envelope.OriginReplay ||
		ev.Type != "order.refunded" || ev.Subject != "o-1" || ev.DataSchema != "3" || ev.Key != "eu" {
		t.Errorf("got %+v", ev)
	}
	delete(item.Header, "id")
	check(t, admission.New(orders()).Decide(item, 0, arrival, &ev), admission.MissingID)
}

// The digest is that of the data alone, however it came in.
func TestDecideDigestDoesNotDependOnTheFormat(t *testing.T) {
	data := order("", `"eu-west"`, "1", at)
	a := admission.New(orders())
	var structured, binary envelope.Event
	check(t, a.Decide(cloud(`"id":"a","source":"shop"`), 0, arrival, &structured), "")
	check(t, a.Decide(admission.Item{Format: admission.Binary, Bytes: []byte(" " + data), Header: map[string]string{
		"specversion": "1.0", "id": "a", "source": "shop", "type": "order",
	}}, 0, arrival, &binary), "")
	want, err := envelope.DigestJSON([]byte(data))
	if err != nil || structured.Digest != want || binary.Digest != want {
		t.Errorf("got %x and %x, want %x (%v)", structured.Digest, binary.Digest, want, err)
	}
}

func TestDecideKeys(t *testing.T) {
	bs := orders()
	bs.Key = []string{"/order/region", "/shop", "/order/amount"}
	a := admission.New(bs)
	for _, c := range []struct{ region, shop, amount, want string }{
		{`"eu"`, `"a/b%c"`, "7", "eu/a%2Fb%25c/7"},
		{`""`, `"x"`, "7", "/x/7"},
		{`true`, `-12`, "7", "true/-12/7"},
		{`"São Paulo"`, `"x.y z"`, "7", "São Paulo/x.y z/7"},
		{`"\u0061\/b"`, `"é"`, "7", "a%2Fb/é/7"},
	} {
		src := `{"id":"1","shop":` + c.shop + "," + order("", c.region, c.amount, at)[1:]
		var ev envelope.Event
		for range 2 { // from the cache the second time
			check(t, a.Decide(plain(src), 0, arrival, &ev), "")
			if ev.Key != c.want {
				t.Errorf("got key %q, want %q", ev.Key, c.want)
			}
		}
	}
}

func TestDecideUnixTimes(t *testing.T) {
	for _, c := range []struct {
		format policy.TimeFormat
		text   string
		want   envelope.EventTime
		reason admission.Reason
	}{
		{policy.UnixS, "1796033700", 1796033700000000, ""},
		{policy.UnixS, `"1796033700.250001"`, 1796033700250001, ""},
		{policy.UnixS, "1.7960337e9", 1796033700000000, ""},
		{policy.UnixS, "1796033700.2500010", 1796033700250001, ""},
		{policy.UnixS, "1796033700.2500001", 0, admission.EventTimeFormat},
		{policy.UnixMs, "1796033700250", 1796033700250000, ""},
		{policy.UnixMs, "1796033700250.001", 1796033700250001, ""},
		{policy.UnixMs, "1796033700250.0001", 0, admission.EventTimeFormat},
		{policy.UnixUs, `"1796033700250001"`, 1796033700250001, ""},
		{policy.UnixUs, "1796033700250001.5", 0, admission.EventTimeFormat},
		{policy.UnixUs, `"now"`, 0, admission.EventTimeFormat},
		{policy.UnixUs, `""`, 0, admission.EventTimeFormat},
		{policy.UnixUs, `true`, 0, admission.EventTimeFormat},
		{policy.UnixS, `1e999`, 0, admission.EventTimeOutOfRange},
		{policy.UnixS, `-1e999`, 0, admission.EventTimeOutOfRange},
		{policy.UnixS, strings.Repeat("9", 500), 0, admission.EventTimeOutOfRange},
		{policy.UnixS, "1796034300", 1796034300000000, ""},
		{policy.UnixUs, "1796034300000001", 0, admission.EventTimeOutOfRange},
	} {
		bs := orders()
		bs.Extractors[0].Format = c.format
		var ev envelope.Event
		check(t, admission.New(bs).Decide(plain(order(`"a"`, `"eu"`, "1", c.text)), 0, arrival, &ev), c.reason)
		if c.reason == "" && (len(ev.Times) != 1 || ev.Times[0] != c.want) {
			t.Errorf("%s %s: got %v, want %d", c.format, c.text, ev.Times, c.want)
		}
	}
}

func TestDecideValueTypes(t *testing.T) {
	for _, c := range []struct {
		kind policy.ValueType
		text string
		want envelope.Value
		not  admission.Reason
	}{
		{policy.Int, "7", envelope.Value{Int: 7}, ""},
		{policy.Int, `"-7"`, envelope.Value{Int: -7}, ""},
		{policy.Int, "7.00", envelope.Value{Int: 7}, ""},
		{policy.Int, "7.5", envelope.Value{}, admission.ValuePrecision},
		{policy.Int, "9223372036854775807", envelope.Value{Int: 1<<63 - 1}, ""},
		{policy.Int, "9223372036854775808", envelope.Value{}, admission.ValueFormat},
		{policy.String, `"caf\u00e9"`, envelope.Value{Text: "café"}, ""},
		{policy.String, `""`, envelope.Value{}, ""},
		{policy.String, "7", envelope.Value{}, admission.ValueFormat},
	} {
		bs := orders()
		bs.Values[0].Type = c.kind
		var ev envelope.Event
		check(t, admission.New(bs).Decide(plain(order(`"a"`, `"eu"`, c.text, at)), 0, arrival, &ev), c.not)
		if c.not == "" && (len(ev.Values) != 1 || ev.Values[0] != c.want) {
			t.Errorf("%s %s: got %v, want %v", c.kind, c.text, ev.Values, c.want)
		}
	}
}

// An event must satisfy every extractor the stream declares.
func TestDecideEveryExtractor(t *testing.T) {
	bs := orders()
	bs.Extractors = append(bs.Extractors, policy.Extractor{Name: "order.paid_at@1", Path: "/paid_at", Format: policy.UnixS})
	a := admission.New(bs)
	var ev envelope.Event
	check(t, a.Decide(plain(order(`"a"`, `"eu"`, "1", at)), 0, arrival, &ev), admission.MissingEventTime)
	check(t, a.Decide(plain(`{"paid_at":1796033700,`+order(`"a"`, `"eu"`, "1", at)[1:]), 0, arrival, &ev), "")
	if len(ev.Times) != 2 || ev.Times[1] != 1796033700000000 {
		t.Errorf("got times %v", ev.Times)
	}
}

func TestKeyPartition(t *testing.T) {
	for _, key := range []string{"eu-west", "a", strings.Repeat("ü", 100)} {
		h := fnv.New32a()
		_, _ = io.WriteString(h, key)
		for _, partitions := range []int{1, 8, 99} {
			if got := admission.KeyPartition(key, partitions); got != int(h.Sum32()%uint32(partitions)) {
				t.Errorf("%q of %d: got %d", key, partitions, got)
			}
		}
	}
}

// A usual event costs no allocation between its bytes and its place in a frame.
func TestDecideDoesNotAllocate(t *testing.T) {
	bs := orders()
	bs.Key = []string{"/order/region", "/order/amount"}
	a := admission.New(bs)
	frame := envelope.NewFrameBuilder("w", []string{"t"}, []string{"v"})
	it := plain(order(`"o-1"`, `"eu"`, "12", at))
	var ev envelope.Event
	got := testing.AllocsPerRun(200, func() {
		frame.Reset()
		if refusal := a.Decide(it, 0, arrival, &ev); refusal != nil {
			t.Fatal(refusal)
		}
		if err := frame.AddEvent(&ev); err != nil {
			t.Fatal(err)
		}
	})
	if got > 0 {
		t.Errorf("%v allocations an event", got)
	}
}

// Real rows of the examples are all accepted and come back from a frame unchanged.
func TestDecideRealRows(t *testing.T) {
	quakes := &policy.BusinessStream{
		Name: "earthquakes", Partitions: 4, Key: []string{"/net"}, MaxEventBytes: 256 << 10, MaxFuture: 5 * policy.Minute,
		Values:     []policy.ValueSpec{{Name: "mag", Path: "/mag", Type: policy.Decimal, Scale: 2}},
		Extractors: []policy.Extractor{{Name: "quake.time@1", Path: "/time_ms", Format: policy.UnixMs}},
	}
	for _, c := range []struct {
		stream *policy.BusinessStream
		file   string
	}{{flights(), "flights"}, {quakes, "earthquakes"}} {
		files, err := filepath.Glob(filepath.Join("..", "..", "..", "examples", c.file, "*.jsonl.gz"))
		if err != nil {
			t.Fatal(err)
		}
		lines := [][]byte{[]byte(flightLine)}
		if c.file == "earthquakes" {
			lines = [][]byte{[]byte(`{"id":"ak18247005","net":"ak","time_ms":1517365101235,"updated_ms":1517365391235,"mag":2.3,"place":"81km WNW of Skagway, Alaska","lon":-136.5559,"depth_km":0}`)}
		}
		for _, name := range files {
			lines = append(lines, readLines(t, name)...)
		}
		a := admission.New(c.stream)
		for i, line := range lines {
			var ev envelope.Event
			it := admission.Item{Format: admission.Plain, Bytes: line, Source: c.file}
			if refusal := a.Decide(it, 0, arrival, &ev); refusal != nil {
				t.Fatalf("%s line %d: %s: %s", c.file, i, refusal.Reason, refusal.Rule)
			}
			surviveFrame(t, a, &ev)
		}
	}
}

func readLines(t *testing.T, name string) [][]byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSpace(text), []byte("\n"))
}

func surviveFrame(t *testing.T, a *admission.Admitter, ev *envelope.Event) {
	t.Helper()
	extractors, values := a.Frame()
	b := envelope.NewFrameBuilder("w", extractors, values)
	if err := b.AddEvent(ev); err != nil {
		t.Fatalf("%+v: %v", ev, err)
	}
	frame, err := envelope.DecodeFrame(b.Finish(1))
	if err != nil || len(frame.Records) != 1 {
		t.Fatalf("%+v: %v", ev, err)
	}
	if got, want := frame.Records[0].Event.Clone(), ev.Clone(); !reflect.DeepEqual(got, want) {
		t.Fatalf("event came back as %+v, went in as %+v", got, want)
	}
}

// FuzzDecide: never a panic, exactly one outcome, the same outcome from a used Admitter,
// and what is accepted survives a frame.
func FuzzDecide(f *testing.F) {
	good := order(`"a"`, `"eu"`, "12.50", at)
	for _, seed := range []string{
		good, flightLine, orderLine, string(cloud(`"id":"a","source":"shop"`).Bytes), strings.Repeat("[", 66), "\xef\xbb\xbf{}",
		order(`"\ud800"`, `"eu"`, "1", at), order("1", `"a/%"`, "1e999", at), order(`"a"`, `"eu"`, "1e-3", at),
		good[:len(good)-1] + `,"ID":1}`, order(`"a"`, `"eu"`, strings.Repeat("9", 40), at), `{"id":"\u0000","order":null}`,
	} {
		f.Add([]byte(seed), uint8(1), uint32(0))
		f.Add([]byte(seed), uint8(2), uint32(1))
		f.Add([]byte(seed), uint8(3), uint32(2))
	}
	bs := orders()
	bs.Key = append(bs.Key, "/order/amount")
	used := admission.New(bs)
	f.Fuzz(func(t *testing.T, src []byte, format uint8, partition uint32) {
		it := admission.Item{
			Format: admission.Format(format), Bytes: src, Source: "shop",
			Header: map[string]string{"specversion": "1.0", "id": "h", "source": "shop", "type": "t"},
		}
		var ev, second envelope.Event
		refusal := admission.New(bs).Decide(it, partition, arrival, &ev)
		again := used.Decide(it, partition, arrival, &second)
		if (refusal == nil) != (again == nil) || refusal != nil && *refusal != *again {
			t.Fatalf("got %v, then %v", refusal, again)
		}
		if refusal != nil {
			if refusal.Reason == "" || refusal.Rule == "" {
				t.Fatalf("empty refusal %+v", refusal)
			}
			return
		}
		if ev.ID == "" || ev.Source == "" || len(ev.Key) < 1 || len(ev.Key) > 256 || len(ev.Times) != 1 || len(ev.Values) != 1 {
			t.Fatalf("accepted %+v", ev)
		}
		digest, err := envelope.DigestJSON(ev.Data)
		if err != nil || digest != ev.Digest {
			t.Fatalf("digest of %q is %x, not %x (%v)", ev.Data, digest, ev.Digest, err)
		}
		surviveFrame(t, used, &ev)
	})
}

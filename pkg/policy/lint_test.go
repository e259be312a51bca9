package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestLint(t *testing.T) {
	tests := []struct {
		name, src string
		rules     []string
		line      int
		says      string
	}{
		{"fine", edit("1h}", "1h}"), nil, 0, ""},
		{"slide", edit("{tumbling: 1h}", "{hopping: 1h, every: 61m}"), []string{"slide-exceeds-size"}, 19, "1h1m"},
		{"slide zero", edit("{tumbling: 1h}", "{hopping: 1h, every: 0s}"), []string{"slide-not-positive"}, 19, "positive"},
		{"1000 windows", edit("{tumbling: 1h}", "{hopping: 1000s, every: 1s}"), nil, 0, ""},
		{"1001 windows", edit("{tumbling: 1h}", "{hopping: 1000.000001s, every: 1s}"), []string{"too-many-windows"}, 19, "1001"},
		{"gap", edit("{tumbling: 1h}", "{session: 0s, rule: r}"), []string{"gap-not-positive"}, 19, "gap"},
		{"gap negative", edit("{tumbling: 1h}", "{session: -1s, rule: r}"), []string{"gap-not-positive"}, 19, "gap"},
		{"size", edit("{tumbling: 1h}", "{tumbling: 0s}"), []string{"window-size-not-positive"}, 19, "positive"},
		{"size in short form", edit("{tumbling: 1h}", "tumbling:-1h"), []string{"window-size-not-positive"}, 19, "positive"},
		{"offset", edit("{tumbling: 1h}", "{tumbling: 1h, offset: 1h}"), []string{"offset-out-of-range"}, 19, "1h"},
		{"offset fits", edit("{tumbling: 1h}", "{tumbling: 1h, offset: -59m}"), nil, 0, ""},
		{"zone", edit("{tumbling: 1h}", "{calendar: day, zone: Europe/Pari}"), []string{"unknown-zone"}, 19, "Europe/Pari"},
		{"zone Local", edit("{tumbling: 1h}", "tumbling:1h:Local"), []string{"unknown-zone"}, 19, "Local"},
		{"zone known", edit("{tumbling: 1h}", "{calendar: month, zone: Asia/Kathmandu}"), nil, 0, ""},
		{"idle", edit("60m", "999ms"), []string{"idle-too-short"}, 18, "1s"},
		{"idle zero", edit("60m", "0s"), []string{"idle-too-short"}, 18, "1s"},
		{"idle in short form", edit("idle: {after: 60m}", "idlePartitionAfter: 1ms"), []string{"idle-too-short"}, 18, "1s"},
		{"idle 1s", edit("60m", "1s"), nil, 0, ""},
		{"ids", edit("allowedLateness: 24h", "allowedLateness: 24h\nretention: {ids: 24h59m59.999999s}"), []string{"ids-too-short"}, 22, "1d1h"},
		{"ids fit", edit("allowedLateness: 24h", "allowedLateness: 24h\nretention: {ids: 25h}"), nil, 0, ""},
		{"ids of a month", edit("{tumbling: 1h}", "{calendar: month}\nretention: {ids: 32d}"), []string{"ids-too-short"}, 20, "32d1h"},
		{"extractor", edit("timestampExtractor: at@1", "timestampExtractor: at@2"), []string{"unknown-extractor"}, 16, "did you mean at@1?"},
		{"value", edit("sum(amount)", "sum(amuont)"), []string{"unknown-value"}, 20, "did you mean amount?"},
		{"value type", edit("sum(amount)", "sum(label)"), []string{"aggregate-type"}, 20, "string"},
		{"distinct text", edit("sum(amount)", "distinct(label)"), nil, 0, ""},
		{"stream", edit("stream: orders", "stream: order"), []string{"unknown-stream"}, 12, "did you mean orders?"},
		{"topology", smallStream + "---" + smallPolicy + "---" + strings.NewReplacer("generation: 1", "generation: 2", "partitions: 2", "partitions: 3").Replace(smallPolicy), []string{"topology-change"}, 27, "hourly@1"},
		{"topology meant", smallStream + "---" + smallPolicy + "---" + strings.NewReplacer("generation: 1", "generation: 2", "partitions: 2", "partitions: 3").Replace(smallPolicy) + "topologyChange: true\n", nil, 0, ""},
		{"twice the same", smallStream + "---" + smallStream + "---" + smallPolicy, nil, 0, ""},
		{"twice", smallStream + "---" + strings.Replace(smallStream, "partitions: 2", "partitions: 3", 1), []string{"duplicate-document"}, 11, "f.yaml:2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			docs, findings := Parse("f.yaml", []byte(tt.src))
			if len(findings) > 0 {
				t.Fatal(findings)
			}
			findings = Lint(docs, nil)
			var rules []string
			for _, f := range findings {
				rules = append(rules, f.Rule)
				if f.Line != tt.line || !strings.Contains(f.Message, tt.says) {
					t.Errorf("got %v, want line %d and %q", f, tt.line, tt.says)
				}
			}
			if !slices.Equal(rules, tt.rules) {
				t.Errorf("rules %v, want %v", rules, tt.rules)
			}
		})
	}
}

func TestLintAgainstApplied(t *testing.T) {
	stream, before := parsed(t, smallStream), parsed(t, smallPolicy)
	if f := Lint(before, nil); len(f) != 1 || f[0].Rule != "unknown-stream" {
		t.Errorf("without its stream: %v", f)
	}
	if f := Lint(before, stream); len(f) != 0 {
		t.Errorf("with an applied stream: %v", f)
	}
	next := parsed(t, strings.NewReplacer("generation: 1", "generation: 7", "partitions: 2", "partitions: 3").Replace(smallPolicy))
	if f := Lint(next, append(stream, before...)); len(f) != 1 || f[0].Rule != "topology-change" {
		t.Errorf("other partitions than the applied generation: %v", f)
	}
}

func TestRetractable(t *testing.T) {
	docs := parsed(t, strings.Replace(edit("{revenue: sum(amount), orders: count()}", "{a: sum(amount), b: count(), c: min(amount), d: max(amount), e: avg(amount), f: first(amount), g: last(amount), h: distinct(label)}"), "partitions: 2", "retractions: true\npartitions: 2", 1))
	if f := Lint(docs, nil); len(f) != 0 {
		t.Errorf("every function keeps what a retraction needs: %v", f)
	}
}

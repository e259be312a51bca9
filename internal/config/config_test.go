package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// server is one embedded server for the whole package; every test leaves it empty.
var server *natsio.Embedded

func TestMain(m *testing.M) { os.Exit(withServer(m)) }

func withServer(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tidemark-config")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err = natsio.Embed(context.Background(), natsio.EmbeddedOptions{Dir: dir, Port: -1})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer server.Shutdown()
	return m.Run()
}

func connect(t *testing.T) (context.Context, *natsio.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel) // runs after the cleanup below
	conn, err := server.Connect(ctx, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		names := conn.JS.StreamNames(ctx)
		for name := range names.Name() {
			if err := conn.JS.DeleteStream(ctx, name); err != nil {
				t.Error(err)
			}
		}
		conn.Close()
	})
	return ctx, conn
}

const documents = `
kind: BusinessStream
name: STREAM
partitions: 2
key: [/region]
values: {amount: {path: /amount, type: decimal, scale: 2}}
eventTime: {at@1: {path: /at, format: rfc3339}}
---
kind: StreamTimePolicy
stream: STREAM
job: hourly
generation: 1
sources: [{name: shop, partitions: 2}]
timestampExtractor: at@1
watermark: {boundedOutOfOrderness: 5m}
window: {tumbling: 1h}
aggregates: {revenue: sum(amount), orders: count()}
allowedLateness: 24h
`

// parse answers the documents of a stream, with texts replaced in pairs.
func parse(t *testing.T, stream string, changes ...string) []policy.Document {
	t.Helper()
	src := documents
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(src, changes[i]) {
			t.Fatalf("no such text: %s", changes[i])
		}
		src = strings.Replace(src, changes[i], changes[i+1], 1)
	}
	docs, findings := policy.Parse("docs.yaml", []byte(strings.ReplaceAll(src, "STREAM", stream)))
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	return docs
}

func apply(t *testing.T, ctx context.Context, js jetstream.JetStream, docs []policy.Document) []string {
	t.Helper()
	results, err := Apply(ctx, js, docs, Options{Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	actions := make([]string, len(results))
	for i, r := range results {
		actions[i] = r.Name + " " + r.Action
	}
	return actions
}

func alias(t *testing.T, ctx context.Context, js jetstream.JetStream, bs, job string) *revision.Alias {
	t.Helper()
	stream, err := js.Stream(ctx, subject.RevisionsStream(bs))
	if err != nil {
		t.Fatal(err)
	}
	message, err := stream.GetLastMsgForSubject(ctx, subject.Alias(bs, job))
	if err != nil {
		t.Fatal(err)
	}
	a, err := revision.ParseAlias(message.Data)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestApplyAndLoad(t *testing.T) {
	ctx, conn := connect(t)
	docs := parse(t, "shop")
	reversed := []policy.Document{docs[1], docs[0]}

	dry, err := Apply(ctx, conn.JS, reversed, Options{Replicas: 1, DryRun: true})
	if err != nil || len(dry) != 2 || dry[0].Action != "created" {
		t.Fatalf("dry run: %v, %v", dry, err)
	}
	if s, err := Load(ctx, conn.JS); err != nil || len(s.Documents()) != 0 {
		t.Fatalf("a dry run wrote %v, %v", s, err)
	}
	if got := apply(t, ctx, conn.JS, reversed); !slices.Equal(got, []string{"shop created", "shop/hourly@1 created"}) {
		t.Errorf("first apply: %v", got)
	}
	if got := apply(t, ctx, conn.JS, parse(t, "shop", "5m", "300s", "1h", "60m")); !slices.Equal(got, []string{"shop unchanged", "shop/hourly@1 unchanged"}) {
		t.Errorf("second apply: %v", got)
	}
	s, err := Load(ctx, conn.JS)
	if err != nil {
		t.Fatal(err)
	}
	entry, found := s.Find(docs[1])
	if !found || entry.Digest != docs[1].Digest() || entry.CoreVersion != CoreVersion || string(entry.Canonical) != string(docs[1].Canonical()) || entry.Revision == 0 {
		t.Errorf("loaded %+v", entry)
	}
	if entry, found := s.Find(docs[0]); !found || entry.Stream.Partitions != 2 || entry.CoreVersion != 0 {
		t.Errorf("loaded %+v", entry)
	}
	for _, name := range []string{subject.EventsStream("shop", 1), subject.WindowsStream("shop", "hourly", 1, 1)} {
		if _, err := conn.JS.Stream(ctx, name); err != nil {
			t.Errorf("stream %s: %v", name, err)
		}
	}
	if a := alias(t, ctx, conn.JS, "shop", "hourly"); a.Canonical != 1 || a.Epoch != 1 {
		t.Errorf("alias %+v", a)
	}
	audits, err := conn.JS.Stream(ctx, subject.AuditStream)
	if err != nil {
		t.Fatal(err)
	}
	message, err := audits.GetLastMsgForSubject(ctx, subject.Audit("shop", "apply"))
	if err != nil || !strings.Contains(string(message.Data), docs[1].Digest()) || !strings.Contains(string(message.Data), `"who"`) {
		t.Errorf("audit %v, %v", message, err)
	}
}

func TestLaterGenerationLeavesTheAliasAlone(t *testing.T) {
	ctx, conn := connect(t)
	first := parse(t, "gens")
	apply(t, ctx, conn.JS, first)
	second := parse(t, "gens", "generation: 1", "generation: 2", "24h", "48h")[1:]
	if got := apply(t, ctx, conn.JS, second); !slices.Equal(got, []string{"gens/hourly@2 created"}) {
		t.Errorf("policy against its applied stream: %v", got)
	}
	if a := alias(t, ctx, conn.JS, "gens", "hourly"); a.Canonical != 1 {
		t.Errorf("alias %+v", a)
	}
	both := append(parse(t, "both", "generation: 1", "generation: 9"), parse(t, "both", "generation: 1", "generation: 3")[1:]...)
	apply(t, ctx, conn.JS, both)
	if a := alias(t, ctx, conn.JS, "both", "hourly"); a.Canonical != 3 {
		t.Errorf("the least generation of one apply must become canonical: %+v", a)
	}
}

func TestConflicts(t *testing.T) {
	ctx, conn := connect(t)
	apply(t, ctx, conn.JS, parse(t, "clash"))
	for _, tt := range []struct {
		name, field string
		changes     []string
	}{
		{"partitions first", "partitions", []string{"partitions: 2\nkey: [/region]", "partitions: 3\nkey: [/shop]"}},
		{"key", "key[0]", []string{"/region", "/shop"}},
		{"value changed", "values.amount.scale", []string{"scale: 2", "scale: 3\n    }\nschemaGeneration: 2\nretractions: false #"}},
		{"value without schemaGeneration", "values.tax.path", []string{"values: {", "values: {tax: {path: /tax, type: int}, "}},
		{"value removed", "values.amount.path", []string{"values: {amount: {path: /amount, type: decimal, scale: 2}}", "values: {total: {path: /amount, type: int}}\nschemaGeneration: 2", "sum(amount)", "sum(total)"}},
		{"lateness", "allowedLateness", []string{"24h", "25h"}},
		{"sources", "sources[0].partitions", []string{"shop, partitions: 2", "shop, partitions: 3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "value changed" {
				tt.changes = []string{"scale: 2}}", "scale: 3}}\nschemaGeneration: 2"}
			}
			before, err := Load(ctx, conn.JS)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Apply(ctx, conn.JS, parse(t, "clash", tt.changes...), Options{Replicas: 1})
			var conflict *ConflictError
			if !errors.As(err, &conflict) || conflict.Field != tt.field || !strings.Contains(err.Error(), tt.field) {
				t.Errorf("got %v, want a conflict over %s", err, tt.field)
			}
			after, err := Load(ctx, conn.JS)
			if err != nil || !same(before, after) {
				t.Errorf("a refused apply wrote something: %v", err)
			}
		})
	}
}

func TestStreamGainsValues(t *testing.T) {
	ctx, conn := connect(t)
	apply(t, ctx, conn.JS, parse(t, "grow"))
	grown := parse(t, "grow", "values: {", "schemaGeneration: 2\nvalues: {tax: {path: /tax, type: int}, ", "eventTime: {", "eventTime: {at@2: {path: /at2, format: unix-ms}, ")
	if got := apply(t, ctx, conn.JS, grown); !slices.Equal(got, []string{"grow updated", "grow/hourly@1 unchanged"}) {
		t.Errorf("got %v", got)
	}
	if _, err := Apply(ctx, conn.JS, parse(t, "grow"), Options{Replicas: 1}); err == nil {
		t.Error("an older stream document was taken")
	}
}

func TestRefusals(t *testing.T) {
	ctx, conn := connect(t)
	for rule, change := range map[string][2]string{
		"ids-too-short":     {"24h", "24h\nretention: {ids: 1h}"},
		"unknown-extractor": {"timestampExtractor: at@1", "timestampExtractor: at@2"},
	} {
		_, err := Apply(ctx, conn.JS, parse(t, "refused", change[0], change[1]), Options{Replicas: 1})
		var refused *RefusedError
		if !errors.As(err, &refused) || len(refused.Findings) != 1 || refused.Findings[0].Rule != rule || !strings.Contains(err.Error(), "docs.yaml:") {
			t.Errorf("%s: got %v", rule, err)
		}
	}
	if _, err := conn.JS.Stream(ctx, subject.RevisionsStream("refused")); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("a refused apply provisioned a stream: %v", err)
	}
}

func TestRaceOfTwoApplies(t *testing.T) {
	ctx, conn := connect(t)
	variants := [][]policy.Document{parse(t, "race"), parse(t, "race", "24h", "36h")}
	errs := make(chan error, len(variants))
	for _, docs := range variants {
		go func() {
			_, err := Apply(ctx, conn.JS, docs, Options{Replicas: 1})
			errs <- err
		}()
	}
	won := 0
	for range variants {
		err := <-errs
		var conflict *ConflictError
		switch {
		case err == nil:
			won++
		case !errors.As(err, &conflict):
			t.Errorf("the loser got %v", err)
		}
	}
	if won != 1 {
		t.Errorf("%d applies won, want 1", won)
	}
}

func TestDamagedDocument(t *testing.T) {
	good := encode(parse(t, "bad")[0])
	if _, err := decode("stream.bad", 7, good); err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{"", "{}", strings.Replace(string(good), `"partitions":2`, `"partitions":3`, 1)} {
		if _, err := decode("stream.bad", 7, []byte(data)); err == nil || !strings.Contains(err.Error(), "stream.bad") || !strings.Contains(err.Error(), "revision 7") {
			t.Errorf("%.30s: %v", data, err)
		}
	}
}

// names answers the documents of one business stream.
func names(s Snapshot, bs string) string {
	var out []string
	for _, d := range s.Documents() {
		if d.BusinessStream() == bs {
			out = append(out, d.Name())
		}
	}
	return strings.Join(out, " ")
}

func await(t *testing.T, snapshots <-chan Snapshot, bs, want string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for got := "nothing"; ; {
		select {
		case s := <-snapshots:
			if got = names(s, bs); got == want {
				return
			}
		case <-deadline:
			t.Fatalf("saw %q, want %q", got, want)
		}
	}
}

func TestWatch(t *testing.T) {
	ctx, conn := connect(t)
	watching, stop := context.WithCancel(ctx)
	snapshots, done := make(chan Snapshot, 100), make(chan error, 1)
	go func() { done <- Watch(watching, conn.JS, func(s Snapshot) { snapshots <- s }) }()
	await(t, snapshots, "watched", "")
	apply(t, ctx, conn.JS, parse(t, "watched"))
	await(t, snapshots, "watched", "watched watched/hourly@1")
	apply(t, ctx, conn.JS, parse(t, "watched", "generation: 1", "generation: 2"))
	await(t, snapshots, "watched", "watched watched/hourly@1 watched/hourly@2")
	stop()
	if err := <-done; err != nil {
		t.Errorf("Watch ended with %v", err)
	}
}

// TestWatchOutlivesServer restarts a server of its own under a watch.
func TestWatchOutlivesServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	own, err := natsio.Embed(ctx, natsio.EmbeddedOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := natsio.Connect(ctx, natsio.Options{Server: own.URL(), Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	watching, stop := context.WithCancel(ctx)
	snapshots, done := make(chan Snapshot, 100), make(chan error, 1)
	go func() { done <- Watch(watching, conn.JS, func(s Snapshot) { snapshots <- s }) }()
	await(t, snapshots, "a", "")
	apply(t, ctx, conn.JS, parse(t, "a"))
	await(t, snapshots, "a", "a a/hourly@1")

	var port int
	if _, err := fmt.Sscanf(own.URL()[strings.LastIndexByte(own.URL(), ':'):], ":%d", &port); err != nil {
		t.Fatal(err)
	}
	own.Shutdown()
	own, err = natsio.Embed(ctx, natsio.EmbeddedOptions{Dir: dir, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Shutdown()
	other, err := own.Connect(ctx, "other")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	apply(t, ctx, other.JS, parse(t, "b"))
	await(t, snapshots, "b", "b b/hourly@1")
	stop()
	if err := <-done; err != nil {
		t.Errorf("Watch ended with %v", err)
	}
}

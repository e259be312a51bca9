package tests

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// check fails unless r ended with code and said every one of words on stderr (or stdout).
func check(t *testing.T, r result, code int, words ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.out, r.err)
	}
	for _, w := range words {
		if !strings.Contains(r.err+r.out, w) {
			t.Errorf("nothing says %q:\n%s%s", w, r.out, r.err)
		}
	}
}

func TestDocumentsThatAreWrongAreRefusedWithFileLineAndRule(t *testing.T) {
	for name, c := range map[string]struct{ from, to, rule string }{
		"unknown field":       {"allowedLateness: 24h", "allowedLatenes: 24h", "unknown-field"},
		"bad duration":        {"tumbling: 1m", "tumbling: 1 minute", "bad-duration"},
		"ids too short":       {"ids: 25h", "ids: 1h", "ids"},
		"unknown extractor":   {"timestampExtractor: at@1", "timestampExtractor: at@2", "extractor"},
		"unknown aggregate":   {"sum(n)", "median(n)", "aggregate"},
		"value not declared":  {"sum(n)", "sum(m)", "m"},
		"no such window kind": {"window: {tumbling: 1m}", "window: {rolling: 1m}", "rolling"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(crashDocuments, c.from) {
				t.Fatalf("the documents do not hold %q", c.from)
			}
			path := write(t, "doc.yaml", strings.Replace(crashDocuments, c.from, c.to, 1))
			r := run(t, "lint", path)
			check(t, r, 1, "doc.yaml:", c.rule)
		})
	}
	check(t, run(t, "lint"), 2)
	check(t, run(t, "lint", filepath.Join(t.TempDir(), "none.yaml")), 2, "none.yaml")
}

func TestErrorsAreClearAndLoseNothing(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	u := startUp(t, data)
	docs := write(t, "clicks.yaml", crashDocuments)
	u.must("apply", "-f", docs)
	u.must("apply", "-f", docs) // the same again changes nothing

	t.Run("changed document under an old generation", func(t *testing.T) {
		changed := write(t, "changed.yaml", strings.Replace(crashDocuments, "boundedOutOfOrderness: 2s", "boundedOutOfOrderness: 3s", 1))
		r := run(t, "apply", "-f", changed, "--server", u.NATS)
		check(t, r, 4, "per-minute@1", "boundedOutOfOrderness")
		check(t, run(t, "diff", "-f", changed, "--server", u.NATS), 1, "boundedOutOfOrderness")
	})
	t.Run("another number of key partitions", func(t *testing.T) {
		changed := write(t, "changed.yaml", strings.Replace(crashDocuments, "partitions: 4", "partitions: 8", 1))
		check(t, run(t, "apply", "-f", changed, "--server", u.NATS), 4, "partitions")
	})
	t.Run("unreachable server", func(t *testing.T) {
		check(t, run(t, "get", "--server", "nats://127.0.0.1:1"), 3, "127.0.0.1:1")
	})
	t.Run("usage", func(t *testing.T) {
		check(t, run(t, "windows"), 2)
		check(t, run(t, "windoes"), 2)
		check(t, run(t, "windows", "clicks", "--server", u.NATS, "-o", "xml"), 2, "ndjson")
		check(t, run(t, "windows", "nothing", "--server", u.NATS), 2, "nothing", "clicks")
		check(t, run(t, "send", docs, "--stream", "clicks", "--source", "app", "--server", u.NATS), 2, "web")
		check(t, run(t, "send", "no-such-file", "--stream", "clicks", "--source", "web", "--server", u.NATS), 2, "no-such-file")
	})
	t.Run("a file that is not JSON", func(t *testing.T) {
		r := run(t, "send", write(t, "letter.txt", "Dear all,\nthis is a letter.\n"), "--stream", "clicks", "--source", "web", "--server", u.NATS)
		check(t, r, 1, "malformed-json", "quarantine")
		var kept []string
		for _, line := range strings.Split(strings.TrimSpace(u.must("quarantine", "ls", "clicks", "-o", "ndjson")), "\n") {
			var q struct {
				ID, Reason string
				Sequence   uint64
			}
			if err := json.Unmarshal([]byte(line), &q); err != nil {
				t.Fatal(err)
			}
			if q.Reason != "malformed-json" {
				t.Errorf("reason %s", q.Reason)
			}
			kept = append(kept, u.must("quarantine", "show", "clicks", fmt.Sprint(q.Sequence), "--raw"))
		}
		if strings.Join(kept, "|") != "Dear all,|this is a letter." {
			t.Errorf("kept %q", kept)
		}
	})
	t.Run("port in use", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
		check(t, run(t, "up", "--data", t.TempDir()+"/a", "--nats-port", port, "--http-port", "0"), 5, port)
		check(t, run(t, "up", "--data", t.TempDir()+"/b", "--nats-port", "0", "--http-port", port), 5, port)
	})
	t.Run("data directory in use, foreign or of another installation", func(t *testing.T) {
		check(t, run(t, "up", "--data", data, "--nats-port", "0", "--http-port", "0"), 5, data)
		foreign := t.TempDir()
		if err := os.WriteFile(foreign+"/letter.txt", []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		check(t, run(t, "up", "--data", foreign, "--nats-port", "0", "--http-port", "0"), 5, "no data directory of Tidemark")
		u.stop()
		if err := os.RemoveAll(data + "/nats"); err != nil {
			t.Fatal(err)
		}
		check(t, run(t, "up", "--data", data, "--nats-port", "0", "--http-port", "0"), 5, "another installation")
	})
}

func TestAPartitionThatIsFinishedRefusesEvents(t *testing.T) {
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", write(t, "clicks.yaml", crashDocuments))
	event := write(t, "one.jsonl", `{"id":"1","user":"a","n":1,"at":1740816000000}`)
	u.must("send", event, "--stream", "clicks", "--source", "web", "--finish")
	r := run(t, "send", event, "--stream", "clicks", "--source", "web", "--server", u.NATS)
	check(t, r, 4, "finished")
}

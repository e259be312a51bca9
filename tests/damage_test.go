package tests

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/core/window"
)

// caches answers the windower's and the projector's file of one key partition.
func caches(data string, pp int) []string {
	return []string{
		filepath.Join(data, "windower", "clicks", fmt.Sprintf("per-minute.1.%02d.db", pp)),
		filepath.Join(data, "projector", "clicks", "per-minute@1", fmt.Sprintf("%02d.view", pp)),
	}
}

// readyz waits until the process at url says what is wrong in every one of the given words.
func readyz(t *testing.T, url string, words ...string) {
	t.Helper()
	text := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		reply, err := http.Get(url + "/readyz?verbose")
		if err != nil {
			continue
		}
		body, _ := io.ReadAll(reply.Body)
		reply.Body.Close()
		text = string(body)
		missing := false
		for _, word := range words {
			missing = missing || !strings.Contains(text, word)
		}
		if !missing && reply.StatusCode == http.StatusServiceUnavailable {
			return
		}
	}
	t.Fatalf("/readyz never said all of %q; last it said\n%s", words, text)
}

// mangle damages the file of each key partition in another way.
func mangle(t *testing.T, data string, old map[string][]byte) {
	t.Helper()
	for pp, how := range []func(text []byte, path string) []byte{
		func(text []byte, _ string) []byte { return text[:len(text)/3] },                         // torn
		func(text []byte, _ string) []byte { clear(text[4096 : len(text)/2]); return text },      // zeroed
		func(_ []byte, path string) []byte { return old[path] },                                  // old
		func(_ []byte, _ string) []byte { return bytes.Repeat([]byte("no database\n"), 10_000) }, // foreign text
	} {
		for _, path := range caches(data, pp) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, how(text, path), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Local files of windower and projector that are torn, zeroed, from an earlier time or
// something else cost time and nothing more.
func TestDamagedLocalFilesAreRebuilt(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	u := startUp(t, data)
	u.must("apply", "-f", write(t, "clicks.yaml", crashDocuments))
	files := []string{clicks(t, 0, 4_000), clicks(t, 1, 4_000)}
	u.must("send", files[0], "--stream", "clicks", "--source", "web", "--partition", "0")
	u.must("wait", "clicks")
	u.stop()
	old := map[string][]byte{}
	for pp := range 4 {
		for _, path := range caches(data, pp) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			old[path] = text
		}
	}
	u = startUp(t, data)
	u.must("send", files[1], "--stream", "clicks", "--source", "web", "--partition", "1", "--finish")
	u.must("send", files[0], "--stream", "clicks", "--source", "web", "--partition", "0", "--finish")
	u.must("wait", "clicks")
	u.stop()
	mangle(t, data, old)
	u = startUp(t, data)
	u.must("wait", "clicks", "--timeout", "1m")
	want, got := expectedClicks(t, files...), u.windows("clicks")
	if len(got) != len(want) {
		t.Errorf("%d windows, want %d", len(got), len(want))
	}
	for k, w := range want {
		if g := got[k]; g.text("clicks") != fmt.Sprint(w[0]) || g.text("total") != fmt.Sprint(w[1]) {
			t.Fatalf("%s is %s/%s, want %v", k, g.text("clicks"), g.text("total"), w)
		}
	}
	u.verified("clicks")
	u.stop()
	refusesWhatIsNotItsOwn(t, data)
}

// refusesWhatIsNotItsOwn puts a file of another service and one of a newer format in
// place: both are left alone, their partitions halt, the others go on.
func refusesWhatIsNotItsOwn(t *testing.T, data string) {
	t.Helper()
	foreign, newer := caches(data, 0), caches(data, 1)
	text, err := os.ReadFile(foreign[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(foreign[0], text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(newer[0]); err != nil {
		t.Fatal(err)
	}
	store, err := checkpoint.Open(newer[0], checkpoint.Kind{Name: "windower", Format: window.Format + 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(newer[0])
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	p := &process{t: t, name: "up", path: binary, log: &lines{}, args: []string{"up", "--data", data, "--nats-port", "0", "--http-port", fmt.Sprint(port)}}
	t.Cleanup(p.kill)
	p.start()
	readyz(t, fmt.Sprintf("http://127.0.0.1:%d", port), foreign[0], "projector-view", newer[0], fmt.Sprintf("format %d", window.Format+1))
	if code, took := p.stop(); code != 0 || took > 20*time.Second {
		t.Errorf("SIGTERM: code %d after %v", code, took)
	}
	for path, want := range map[string][]byte{foreign[0]: text, newer[0]: before} {
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, want) {
			t.Errorf("%s was changed (%v)", path, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	u := startUp(t, data)
	u.must("wait", "clicks", "--timeout", "1m")
	u.verified("clicks")
}

func TestDataDirectoryOfANewerFormatIsRefused(t *testing.T) {
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "tidemark.json"), []byte(`{"format":99,"instance":"x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, "up", "--data", data, "--nats-port", "0", "--http-port", "0")
	if r.code != 5 || !strings.Contains(r.err, "format 99") || !strings.Contains(r.err, "newer Tidemark") {
		t.Errorf("it ended with %d and said %q", r.code, r.err)
	}
	if entries, err := os.ReadDir(data); err != nil || len(entries) != 1 {
		t.Errorf("something was written into it: %v %v", entries, err)
	}
}

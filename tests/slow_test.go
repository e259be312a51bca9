//go:build heavy

package tests

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// rss answers the resident memory of a process in MiB.
func (p *process) rss() int {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		var kib int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			return kib >> 10
		}
	}
	p.t.Fatal("no VmRSS")
	return 0
}

// The projector stands still while events keep coming: ingest and windower go on without
// waiting for it and without growing with what it misses; then it catches up.
func TestSlowProjectorHoldsNobodyUp(t *testing.T) {
	m, services, _, conn := journalMesh(t)
	projector := services["projector"]
	projector.signal(syscall.SIGSTOP)
	var memory []string
	peak := map[string]int{}
	const rounds, perRound = 5, 60_000
	for round := range rounds {
		file := manyClicks(t, round*perRound, perRound)
		for p := range 2 {
			must(t, "send", file, "--stream", "clicks", "--source", "web", "--partition", fmt.Sprint(p), "--server", m.url, "--timeout", "60s")
		}
		m.windowed(conn)
		for _, verb := range []string{"ingest", "windower"} {
			if round > 0 { // the first round warms caches and pools up
				peak[verb] = max(peak[verb], services[verb].rss())
			}
			memory = append(memory, fmt.Sprintf("%s %d MiB", verb, services[verb].rss()))
		}
	}
	for verb, mib := range peak {
		if mib > 768 {
			t.Errorf("%s grew to %d MiB", verb, mib)
		}
	}
	projector.signal(syscall.SIGCONT)
	must(t, "wait", "clicks", "--server", m.url, "--timeout", "3m")
	if r := run(t, "verify", "clicks", "--server", m.url); r.code != 0 {
		t.Errorf("verify ended with %d\n%s%s", r.code, r.out, r.err)
	}
	t.Logf("%d events while the projector stood still; after each round of %d: %s; projector after it %d MiB", rounds*perRound*2, perRound*2, strings.Join(memory, ", "), projector.rss())
}

// manyClicks writes n events a second of event time apart, under ids of their own.
func manyClicks(t *testing.T, first, n int) string {
	t.Helper()
	var b strings.Builder
	base := time.Date(2025, 3, 1, 10, 0, 0, 0, time.UTC).UnixMilli()
	for i := first; i < first+n; i++ {
		fmt.Fprintf(&b, `{"id":"m-%d","user":"user-%d","n":1,"at":%d}`+"\n", i, i%500, base+int64(i)*200)
	}
	return write(t, "many.jsonl", b.String())
}

// windowed waits until no windows journal grows any more.
func (m *mesh) windowed(conn *natsio.Conn) {
	m.t.Helper()
	total := func() (n uint64) {
		for pp := range 4 {
			n += m.last(conn, subject.WindowsStream("clicks", "per-minute", 1, pp))
		}
		return n
	}
	still := total()
	for quiet := 0; quiet < 6; {
		time.Sleep(100 * time.Millisecond)
		if now := total(); now != still {
			still, quiet = now, 0
		} else {
			quiet++
		}
	}
}

package tests

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// SIGTERM in the middle of everything: the process drains and ends with 0 in time; the
// sender goes on where it was, and nothing is lost or doubled.
func TestSigtermDrains(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	u := startUp(t, data)
	u.must("apply", "-f", write(t, "clicks.yaml", strings.Replace(crashDocuments, "partitions: 2}", "partitions: 1}", 1)))
	file := clicks(t, 0, 20_000)
	for range 3 {
		sender := exec.CommandContext(t.Context(), binary, "send", file, "--stream", "clicks", "--source", "web", "--partition", "0", "--server", u.NATS, "--rate", "6000", "--timeout", "2s")
		if err := sender.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(700 * time.Millisecond) // the middle itself
		begun := time.Now()
		if code := u.stop(); code != 0 {
			t.Errorf("it ended with %d\n%s", code, u.log)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("draining took %v", took)
		}
		sender.Wait() // ended by the lost server, or done
		u = startUp(t, data)
	}
	u.must("send", file, "--stream", "clicks", "--source", "web", "--partition", "0", "--finish")
	u.must("wait", "clicks", "--timeout", "1m")
	got, want := u.windows("clicks"), expectedClicks(t, file)
	for k, w := range want {
		if g := got[k]; g.text("clicks") != fmt.Sprint(w[0]) || g.text("total") != fmt.Sprint(w[1]) {
			t.Fatalf("%s is %s/%s, want %v", k, g.text("clicks"), g.text("total"), w)
		}
	}
	u.verified("clicks")
}

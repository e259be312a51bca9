//go:build heavy

package tests

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// scaleRounds is how often something happens to a process.
const scaleRounds = 60

// At random moments random processes stand still, go on, die, leave and come back, often
// several at once and both of one service, while events flow.
func TestProcessesComeAndGoAtRandom(t *testing.T) {
	f := newFleet(t)
	for n := 1; n <= 2; n++ {
		f.each(n, (*process).start)
		f.each(n, (*process).ready)
	}
	files := []string{clicks(t, 0, 120_000), clicks(t, 1, 120_000)}
	sent := f.flow(1500, files...)
	w := f.watch(true)
	random := rand.New(rand.NewPCG(3, 5))
	frozen := map[*process]bool{}
	names := []string{"ingest-1", "ingest-2", "windower-1", "windower-2", "projector-1", "projector-2"}
	did := map[string]int{}
	for range scaleRounds {
		p := f.all[names[random.IntN(len(names))]]
		switch dice := random.IntN(4); {
		case !p.running():
			p.start()
			did["start"]++
		case frozen[p]:
			p.signal(syscall.SIGCONT)
			delete(frozen, p)
			did["go on"]++
		case dice == 0:
			p.kill()
			did["kill"]++
		case dice == 1:
			p.signal(syscall.SIGTERM)
			did["leave"]++
		default:
			p.signal(syscall.SIGSTOP)
			frozen[p] = true
			did["stand still"]++
		}
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond) // the random moment itself
	}
	for _, name := range names {
		p := f.all[name]
		p.signal(syscall.SIGCONT)
		if !p.running() {
			p.start()
		}
	}
	t.Log(did)
	f.moved("all are back", 0.5, 0.5)
	sent()
	f.complete(w, files...)
}

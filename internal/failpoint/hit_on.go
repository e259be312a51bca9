//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/tidemark-mesh/tidemark/internal/clock"
)

// Enabled tells whether this program was built with points.
const Enabled = true

// armed is read from the environment when the first point is hit.
var armed = sync.OnceValue(func() *armory {
	a, err := parse(os.Getenv(Variable))
	if err != nil {
		fmt.Fprintln(os.Stderr, "failpoint:", err)
		os.Exit(2)
	}
	return a
})

// Hit does what the point is armed with at this hit; nil when nothing.
func Hit(name string) error {
	do, n := armed().hit(name)
	if do.mode == none {
		return nil
	}
	// One write, so that lines of a log beside it stay whole.
	fmt.Fprintf(os.Stderr, "failpoint %s %s hit %d\n", name, do.mode, n)
	switch do.mode {
	case crash:
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGKILL); err != nil {
			panic(err)
		}
		select {} // the signal is on its way
	case stall:
		<-clock.System().NewTimer(do.wait).C()
		return nil
	}
	return fmt.Errorf("%w: %s", ErrInjected, name)
}

// Package failpoint makes a process die, fail or stop for a while at a named instruction,
// so that a test can try every step of every loop.
//
// A point is a call of Hit with a literal name, service/step. Built without the tag
// failpoints, Hit answers nil, is inlined and leaves nothing behind. Built with it, the
// environment decides:
//
//	TIDEMARK_FAILPOINTS="windower/before-commit=crash@1;journal/after-append=error@2"
//
// crash is SIGKILL to the own process at that instruction. error makes Hit answer
// ErrInjected, which a loop must treat like an error of the transport: try again or claim
// again, and lose nothing. stall(2s) makes Hit block. @n is the n-th time that the
// process comes by, counted over all its goroutines. A point that fires says so on
// stderr: "failpoint NAME MODE hit N".
//
// Points stand where a frame, a commit, a batch or a claim goes through, never where a
// single event does.
package failpoint

import "errors"

// Variable names the environment variable that arms points.
const Variable = "TIDEMARK_FAILPOINTS"

// ErrInjected is what Hit answers at a point that is armed with error.
var ErrInjected = errors.New("injected by a failpoint")

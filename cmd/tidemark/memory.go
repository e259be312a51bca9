package main

import (
	"os"
	"runtime/debug"
)

// gcPercent lets the heap grow by half of what lives in it before it is collected. Most
// of that is ids and windows without pointers, which a collection hardly looks at: half
// of Go's usual percentage costs no time that can be measured, and a quarter of the peak
// less.
const gcPercent = 50

// tuneMemory sets gcPercent, unless the environment says what to do.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

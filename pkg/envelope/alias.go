package envelope

import "unsafe"

// alias answers b as a string without copying it. The string is valid, and constant,
// only as long as nobody writes to b: events and frames are read-only once received,
// and every exported function that hands out such strings says so.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

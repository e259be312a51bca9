//go:build !failpoints

package failpoint

// Enabled tells whether this program was built with points.
const Enabled = false

// Hit answers nil.
func Hit(string) error { return nil }

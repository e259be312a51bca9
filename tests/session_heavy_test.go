//go:build heavy

package tests

import "testing"

// The same as TestReadersSeeTwoSessionsOrTheOneTheyBecome for 10,000 bridges, among 20,000
// sessions of the key.
func TestReadersUnderTenThousandBridges(t *testing.T) {
	newBridges(t, 10_000).run(400)
}

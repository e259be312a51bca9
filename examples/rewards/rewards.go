// Package rewards holds the documents of the example rewards, so that `tidemark demo` runs
// from one file without a checkout.
package rewards

import _ "embed"

// Documents is rewards.yaml: the adapter rewards-api@1 and the effect policy reward@1 over
// the stream of package orders.
//
//go:embed rewards.yaml
var Documents []byte

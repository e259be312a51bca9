// Package orders holds the documents of the example shop, so that `tidemark demo` runs
// from one file without a checkout.
package orders

import _ "embed"

// Documents is orders.yaml: the business stream and the job hourly-revenue@1.
//
//go:embed orders.yaml
var Documents []byte

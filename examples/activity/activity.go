// Package activity holds the documents of the example with sessions, so that `tidemark
// demo` runs from one file without a checkout.
package activity

import _ "embed"

// Documents is activity.yaml: the business stream and the job sessions@1.
//
//go:embed activity.yaml
var Documents []byte

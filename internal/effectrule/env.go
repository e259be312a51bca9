package effectrule

import "cel.dev/cel-go/cel"

var _ = cel.NewCustomEnv

package effectrule

import (
	"github.com/tidemark-mesh/tidemark/internal/core/ledger"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Capabilities answers what the ledger may do with an adapter's effects: it never says
// more than the document declares.
func Capabilities(a *policy.Adapter) ledger.Adapter {
	return ledger.Adapter{
		Idempotent:       a.Idempotent() && a.Retry.Auto,
		OnBodyMismatch:   ledger.BodyRule(a.Idempotency.OnBodyMismatch),
		Retention:        int64(a.Idempotency.Retention),
		Query:            a.Queryable(),
		Authoritative:    a.Query.Absence == policy.AbsenceAuthoritative,
		LateArrivalBound: int64(a.Query.LateArrivalBound),
		QueryFor:         int64(a.Query.For),
		Receipts:         a.ReceiptSecrets != "",
		SendUnproven:     a.SendUnproven,
		SendWithin:       int64(a.SendWithin),
		Timeout:          int64(a.Timeout),
		Grace:            int64(a.Grace),
		ClockUncertainty: int64(a.ClockUncertainty),
	}
}

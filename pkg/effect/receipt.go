package effect

import "github.com/tidemark-mesh/tidemark/pkg/revision"

// ReceiptSchema names the JSON form of a receipt.
const ReceiptSchema = "effectReceipt.v1"

// Receipt is a provider's word that an effect ran. It is evidence once its signature is
// verified, and never for absence: there is no receipt that says "did not run".
type Receipt struct {
	Schema    string    `json:"schema"`
	Key       EffectKey `json:"effectKey"`
	Ref       string    `json:"ref"` // the provider's own id, 1 to 256 bytes
	Amount    string    `json:"amount,omitempty"`
	Subject   string    `json:"subject,omitempty"`
	AppliedAt Time      `json:"appliedAt"`
}

// Evidence answers what the receipt proves; digest is that of the bytes that were signed.
func (r *Receipt) Evidence(digest revision.Digest) Evidence {
	return Evidence{
		Source: FromReceipt, Found: 1, Key: r.Key, Amount: r.Amount, Subject: r.Subject, Ref: r.Ref, Digest: digest,
	}
}

package admission_test

import (
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

func orders() *policy.BusinessStream {
	notBefore, err := envelope.ParseEventTime("2020-01-01T00:00:00Z")
	if err != nil {
		panic(err)
	}
	return &policy.BusinessStream{
		Name: "orders", Partitions: 8, Key: []string{"/order/region"}, MaxEventBytes: 256 << 10,
		Values:     []policy.ValueSpec{{Name: "amount", Path: "/order/amount", Type: policy.Decimal, Scale: 2}},
		Extractors: []policy.Extractor{{Name: "order.occurred_at@2", Path: "/order/occurred_at", Format: policy.RFC3339}},
		MaxFuture:  5 * policy.Minute, NotBefore: notBefore, SchemaGeneration: 3, Retractions: true,
	}
}

package bench

// Names of the documents.
const (
	Stream     = "bench"
	Job        = "hourly"
	Source     = "shop"
	SumName    = "revenue"
	Extractor  = "occurred_at@1"
	Generation = 1
)

// Documents answers the business stream and the policy of the workload as YAML. Ids are
// kept for keepIDs, as policies write durations.
func Documents(keepIDs string, w Window) []byte {
	return []byte(`apiVersion: tidemark/v1
kind: BusinessStream
name: ` + Stream + `
partitions: 8
key: [/order/customer]
values:
  amount: {path: /order/amount, type: decimal, scale: 2}
eventTime:
  ` + Extractor + `: {path: /order/occurred_at, format: rfc3339}
bounds: {maxFuture: 5m, notBefore: 2020-01-01T00:00:00Z}
maxEventBytes: 64KiB
---
apiVersion: tidemark/v1
kind: StreamTimePolicy
schema: streamTimePolicy.v1
stream: ` + Stream + `
job: ` + Job + `
generation: 1
sources: [{name: ` + Source + `, partitions: 8}]
timestampExtractor: ` + Extractor + `
watermark: {boundedOutOfOrderness: 5m}
idle: {after: 1s, allIdle: hold}
window: ` + w.document() + `
aggregates: {` + SumName + `: sum(amount), orders: count()}
allowedLateness: 24h
late: rebuild
retention: {ids: ` + keepIDs + `, raw: unlimited}
correctionMode: UPSERT_REVISION
`)
}

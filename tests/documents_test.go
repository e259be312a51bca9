package tests

import (
	"fmt"
	"strings"
	"testing"
)

const meterDocuments = `
apiVersion: tidemark/v1
kind: BusinessStream
name: meters
partitions: %d
key: [/site, /meter]
values:
  kwh: {path: /reading/kwh, type: decimal, scale: 3}
  pulses: {path: /reading/pulses, type: int}
  tariff: {path: /tariff, type: string}
eventTime:
  taken@1: {path: /taken, format: unix-s}
---
apiVersion: tidemark/v1
kind: StreamTimePolicy
stream: meters
job: quarter-hours@1
sources: [{name: "röhre/süd", partitions: 1}]
timestampExtractor: taken@1
watermark: {boundedOutOfOrderness: 1m}
window: {tumbling: 15m, offset: 5m}
aggregates:
  used: sum(kwh)
  least: min(kwh)
  most: max(kwh)
  mean: avg(kwh)
  pulses: sum(pulses)
  readings: count()
  cheapest: min(tariff)
allowedLateness: 1h
retention: {ids: 2h}
`

const meterRows = `{"id":"a","site":"Zürich West","meter":"1.7","tariff":"night","reading":{"kwh":"0.125","pulses":4},"taken":1700000000}
{"id":"b","site":"Zürich West","meter":"1.7","tariff":"day","reading":{"kwh":1.5,"pulses":6},"taken":1700000060}
{"id":"c","site":"a/b%","meter":"x y","tariff":"day","reading":{"kwh":-0.5,"pulses":-1},"taken":1700000061}
{"id":"d","site":"Zürich West","meter":"1.7","tariff":"day","reading":{"kwh":2,"pulses":1},"taken":1700000600}
{"id":"a","site":"Zürich West","meter":"1.7","tariff":"night","reading":{"kwh":"0.125","pulses":4},"taken":1700000000}
{"id":"a","site":"Zürich West","meter":"1.7","tariff":"night","reading":{"kwh":"0.126","pulses":4},"taken":1700000000}
`

// Another key, another length with an offset, several values, keys with spaces, dots and
// letters beyond ASCII, a duplicate and a conflict: at 1 and at 8 key partitions.
func TestOtherDocumentsWorkAtOneAndEightKeyPartitions(t *testing.T) {
	var first map[string]windowLine
	for _, partitions := range []int{1, 8} {
		t.Run(fmt.Sprintf("%d key partitions", partitions), func(t *testing.T) {
			u := startUp(t, t.TempDir()+"/data")
			u.must("apply", "-f", write(t, "meters.yaml", fmt.Sprintf(meterDocuments, partitions)))
			u.must("send", write(t, "meters.jsonl", meterRows), "--stream", "meters", "--source", "röhre/süd", "--finish")
			u.must("wait", "meters")
			rows := u.windows("meters")
			// 1700000000 is 22:13:20; windows start 5 minutes after each quarter hour.
			w, ok := rows["Zürich West/1.7 2023-11-14T22:05:00Z"]
			if !ok {
				t.Fatalf("rows are %v", rows)
			}
			for name, want := range map[string]string{
				"used": "1.625", "least": "0.125", "most": "1.500", "mean": "0.812500000", "pulses": "10", "readings": "2", "cheapest": "day",
			} {
				if w.text(name) != want {
					t.Errorf("%s is %s, want %s", name, w.text(name), want)
				}
			}
			if other := rows["a%2Fb%25/x y 2023-11-14T22:05:00Z"]; other.text("used") != "-0.500" {
				t.Errorf("the key with a slash and a percent sign has %v", rows)
			}
			u.verified("meters")
			if first == nil {
				first = rows
				return
			}
			for k, w := range first {
				if fmt.Sprint(w) != fmt.Sprint(rows[k]) {
					t.Errorf("%s at 1 key partition is %v, at 8 %v", k, w, rows[k])
				}
			}
		})
	}
}

func TestCSVAndCloudEventsComeIn(t *testing.T) {
	const documents = `
apiVersion: tidemark/v1
kind: BusinessStream
name: sales
partitions: 2
key: [/shop]
values:
  amount: {path: /amount, type: decimal, scale: 2}
eventTime:
  at@1: {path: /at, format: rfc3339}
---
apiVersion: tidemark/v1
kind: StreamTimePolicy
stream: sales
job: daily@1
sources: [{name: till, partitions: 2}]
timestampExtractor: at@1
watermark: {boundedOutOfOrderness: 0s}
window: {tumbling: 1d}
aggregates: {amount: sum(amount), n: count()}
allowedLateness: 1d
retention: {ids: 3d}
`
	const csv = "id,shop,amount,at\n1,\"Bern, Altstadt\",10.50,2024-02-01T10:00:00Z\n2,\"Bern, Altstadt\",0.25,2024-02-01T23:59:59.999999+00:00\n3,Genève,7,2024-02-01T00:00:00Z\n"
	const events = `[{"specversion":"1.0","id":"4","source":"till","type":"sale","data":{"shop":"Genève","amount":"1.00","at":"2024-02-01T12:00:00Z"}},
 {"specversion":"1.0","id":"5","source":"till","type":"sale","time":"2024-05-05T00:00:00Z","data":{"shop":"Genève","amount":2,"at":"2024-02-01T13:00:00Z"}}]`
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", write(t, "sales.yaml", documents))
	u.must("send", write(t, "sales.csv", csv), "--stream", "sales", "--source", "till", "--partition", "0", "--format", "csv", "--finish")
	u.must("send", write(t, "sales.json", events), "--stream", "sales", "--source", "till", "--partition", "1", "--format", "cloudevents", "--finish")
	u.must("wait", "sales")
	rows := u.windows("sales")
	for k, want := range map[string]string{"Bern, Altstadt 2024-02-01T00:00:00Z": "10.75", "Genève 2024-02-01T00:00:00Z": "10.00"} {
		if got := rows[k].text("amount"); got != want {
			t.Errorf("%s is %q, want %s (rows %v)", k, got, want, rows)
		}
	}
	u.verified("sales")
	if out := strings.TrimSpace(u.must("quarantine", "ls", "sales", "-o", "ndjson")); out != "" {
		t.Errorf("quarantined: %s", out)
	}
}

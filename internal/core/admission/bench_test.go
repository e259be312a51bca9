package admission_test

import (
	"fmt"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/core/admission"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

func flights() *policy.BusinessStream {
	return &policy.BusinessStream{
		Name: "flights", Partitions: 8, Key: []string{"/origin"}, MaxEventBytes: 256 << 10,
		Values:     []policy.ValueSpec{{Name: "delay", Path: "/delay_min", Type: policy.Int}, {Name: "distance", Path: "/distance_mi", Type: policy.Int}},
		Extractors: []policy.Extractor{{Name: "flight.occurred_at@1", Path: "/occurred_at", Format: policy.RFC3339}},
		MaxFuture:  5 * policy.Minute,
	}
}

const flightLine = `{"id":"flight-000001","scheduled_at":"2001-01-01T00:47:00Z","occurred_at":"2001-01-01T01:53:00Z","origin":"DTW","destination":"LAS","delay_min":66,"distance_mi":1750}`

// orderLine has 200 bytes, two levels and an amount with decimals.
const orderLine = `{"id":"order-0000000000000042","order":{"region":"eu-west","amount":12945.50,"currency":"EUR","items":3,"occurred_at":"2026-11-30T10:15:00.250Z"},"customer":"c-8812345678","channel":"web","note":"none"}`

var arrival = mustTime("2026-11-30T10:20:00Z")

func mustTime(text string) envelope.IngestTime {
	t, err := envelope.ParseEventTime(text)
	if err != nil {
		panic(err)
	}
	return envelope.IngestTime(t)
}

func benchmarkAdmit(b *testing.B, bs *policy.BusinessStream, it admission.Item) {
	a := admission.New(bs)
	extractors, values := a.Frame()
	frame := envelope.NewFrameBuilder("0b54b6b2-6f0c-4f0e-9a53-1d6c5f3f7a10", extractors, values)
	var ev envelope.Event
	b.SetBytes(int64(len(it.Bytes)))
	b.ReportAllocs()
	offset, bytes := uint64(1<<32), 0
	for b.Loop() {
		if refusal := a.Decide(it, 0, arrival, &ev); refusal != nil {
			b.Fatal(refusal)
		}
		offset++
		ev.SourceOffset, ev.PartitionGeneration, ev.IngestTime = offset, 1, arrival
		before := frame.Len()
		if err := frame.AddEvent(&ev); err != nil {
			b.Fatal(err)
		}
		bytes = frame.Len() - before
		if frame.Len() > 64<<10 {
			frame.Finish(1)
			frame.Reset()
		}
	}
	b.ReportMetric(float64(bytes), "frame-B/event")
}

func BenchmarkAdmitFlight(b *testing.B) {
	benchmarkAdmit(b, flights(), admission.Item{Format: admission.Plain, Bytes: []byte(flightLine), Source: "faa"})
}

func BenchmarkAdmitOrder(b *testing.B) {
	benchmarkAdmit(b, orders(), admission.Item{Format: admission.Plain, Bytes: []byte(orderLine), Source: "shop"})
}

func BenchmarkAdmitCloudEvent(b *testing.B) {
	event := fmt.Sprintf(`{"specversion":"1.0","id":"o-1","source":"shop","type":"order.placed","datacontenttype":"application/json","data":%s}`, orderLine)
	benchmarkAdmit(b, orders(), admission.Item{Format: admission.CloudEvent, Bytes: []byte(event), Source: "shop"})
}

func BenchmarkDecideOnly(b *testing.B) {
	a := admission.New(orders())
	it := admission.Item{Format: admission.Plain, Bytes: []byte(orderLine), Source: "shop"}
	var ev envelope.Event
	b.ReportAllocs()
	for b.Loop() {
		if refusal := a.Decide(it, 0, arrival, &ev); refusal != nil {
			b.Fatal(refusal)
		}
	}
}

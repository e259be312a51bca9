package journal

import (
	"testing"

	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

func BenchmarkWriterCommit64KiB(b *testing.B) {
	js := shared.conn.JS
	w, _ := claimWriter(b, js, windows(b, js))
	records := [][]byte{make([]byte, 64<<10)}
	b.SetBytes(64 << 10)
	b.ResetTimer()
	var last *Pending
	for n := range b.N {
		p, err := w.Commit(b.Context(), records, numbered(uint64(n+1)))
		must(b, err)
		last = p
	}
	<-last.Done()
	_, err := last.Result()
	must(b, err)
}

func BenchmarkFencedBatch(b *testing.B) {
	js := shared.conn.JS
	bs, s := revisions(b, js)
	w, _ := claimFenced(b, js, s)
	messages := rows(bs, 0, 1, 900)
	for i := range messages {
		messages[i].Data = make([]byte, 700)
	}
	b.SetBytes(900 * 700)
	b.ResetTimer()
	for n := range b.N {
		_, err := w.Commit(b.Context(), messages, numbered(uint64(n+1)))
		must(b, err)
	}
	b.ReportMetric(float64(b.N)*900/b.Elapsed().Seconds(), "msgs/s")
}

func BenchmarkReader64KiB(b *testing.B) {
	js := shared.conn.JS
	s := windows(b, js)
	w, _ := claimWriter(b, js, s)
	records := [][]byte{make([]byte, 64<<10)}
	const stored = 2000
	for n := range uint64(stored) {
		_, err := w.Commit(b.Context(), records, numbered(n+1))
		must(b, err)
	}
	must(b, w.Close())
	b.SetBytes(64 << 10)
	b.ResetTimer()
	for n := 0; n < b.N; n += stored {
		want := uint64(min(stored, b.N-n))
		must(b, ReadRange(b.Context(), js, s.Stream, 0, MaxPipeline+1, MaxPipeline+want, func(Msg) error { return nil }))
	}
}

func BenchmarkDecodeEntry(b *testing.B) {
	records := make([][]byte, 1000)
	for i := range records {
		records[i] = make([]byte, 64)
	}
	c := revision.NewCommit()
	data, err := EncodeEntry(&Entry{Records: records, Commit: &c})
	must(b, err)
	b.SetBytes(int64(len(data)))
	for range b.N {
		if _, err := DecodeEntry(1, data); err != nil {
			b.Fatal(err)
		}
	}
}

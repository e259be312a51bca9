package projector

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// BenchmarkAccepted measures accepted revisions a second over 1 and 4 key partitions:
// windows journal in, atomic batches with fsync out, view applied. The op is a revision.
// CPU time counts the embedded server as well; it is what stays comparable on a busy
// machine.
func BenchmarkAccepted(b *testing.B) {
	for _, partitions := range []int{1, 4} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			conn := connect(b)
			first := newPartition(b, conn, partitions)
			const perEntry, keys = 1200, 20000
			each := (b.N + partitions - 1) / partitions
			nodes, last := make([]*node, partitions), make([]uint64, partitions)
			dir := b.TempDir()
			for pp := range nodes {
				p := first
				p.number = pp
				a := newAuthor(b, conn, p, staticOf(p))
				for done := 0; done < each; {
					var records [][]byte
					for ; done < each && len(records) < perEntry; done++ {
						start := base + envelope.EventTime(done/keys)*hour
						records = append(records, a.propose(fmt.Sprintf("key-%06d", done%keys), start, done))
					}
					last[pp] = a.write(base+hour, records...)
				}
				nodes[pp] = newNode(b, conn, p, dir)
			}
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuTime(b)
			stops := make([]func() error, partitions)
			for pp, n := range nodes {
				stops[pp] = n.own(b.Context())
			}
			for pp, n := range nodes {
				n.awaitWindows(last[pp])
			}
			b.StopTimer()
			b.ReportMetric((cpuTime(b)-before).Seconds()*1e6/float64(each*partitions), "cpu-µs/revision")
			b.ReportMetric(float64(each*partitions)/b.Elapsed().Seconds(), "revisions/s")
			for pp, n := range nodes {
				must(b, stops[pp]())
				n.closeView()
			}
		})
	}
}

// cpuTime answers the processor time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

package effectrule

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestOneRuleServesManyPartitions(t *testing.T) {
	r, k := compiled(t), key(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 200 {
				points := 100 + i*1000 + n
				got, err := r.Judge(Input{Revision: hour(t, fmt.Sprintf("%d.99", points*100)), Key: k, Nth: 10})
				if want := fmt.Sprintf(`"points":%d}`, points); err != nil || !strings.HasSuffix(string(got.Payload), want) || got.Expect.Amount != fmt.Sprint(points) {
					t.Errorf("%s, %v; want %s", got.Payload, err, want)
					return
				}
			}
		})
	}
	all.Wait()
}

package providersim

import (
	"cmp"
	"os"
	"slices"
	"time"
)

// Count is what the log says of one effectKey.
type Count struct {
	EffectKey  string    `json:"effectKey"`
	Executions int       `json:"executions"`
	Bodies     int       `json:"bodies"` // different ones among the executions
	Held       int       `json:"held"`   // taken and not carried out yet
	First      time.Time `json:"first,omitzero"`
	Last       time.Time `json:"last,omitzero"`
}

// ReadLog answers the records of a log, which may be in use: a last line without its end
// is left out.
func ReadLog(path string) ([]Record, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	records, _, err := readLog(file, path)
	return records, err
}

// Judge counts by effectKey; those with most executions come first, then by key.
func Judge(records []Record) []Count {
	counts := map[string]*Count{}
	bodies := map[[2]string]bool{}
	waiting := map[string]*Count{}
	for i := range records {
		r := &records[i]
		c := counts[r.EffectKey]
		if c == nil {
			c = &Count{EffectKey: r.EffectKey}
			counts[r.EffectKey] = c
		}
		switch r.Kind {
		case Held:
			waiting[r.ID] = c
			c.Held++
		case Execution:
			if waiting[r.ID] != nil {
				delete(waiting, r.ID)
				c.Held--
			}
			c.execution(r, bodies)
		}
	}
	list := make([]Count, 0, len(counts))
	for _, c := range counts {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Executions, a.Executions), cmp.Compare(a.EffectKey, b.EffectKey))
	})
	return list
}

func (c *Count) execution(r *Record, bodies map[[2]string]bool) {
	if c.Executions == 0 {
		c.First = r.Time
	}
	c.Executions++
	c.Last = r.Time
	if body := [2]string{r.EffectKey, r.BodyDigest}; !bodies[body] {
		bodies[body] = true
		c.Bodies++
	}
}

package tests

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"math/big"
	"os"
	"strconv"
	"testing"
	"time"
)

// sums is a plain computation over a file, without Tidemark: count and sums per window.
type sums struct {
	count int
	sum   map[string]*big.Rat
}

// tally reads a gzip file of JSON lines and groups it by key and window.
func tally(t *testing.T, path, key string, size time.Duration, at func(map[string]any) time.Time, fields ...string) map[string]*sums {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*sums{}
	s := bufio.NewScanner(z)
	for s.Scan() {
		var row map[string]any
		d := json.NewDecoder(bytesReader(s.Bytes()))
		d.UseNumber()
		if err := d.Decode(&row); err != nil {
			t.Fatal(err)
		}
		k := row[key].(string) + " " + at(row).UTC().Truncate(size).Format(time.RFC3339)
		w := out[k]
		if w == nil {
			w = &sums{sum: map[string]*big.Rat{}}
			out[k] = w
		}
		w.count++
		for _, name := range fields {
			n, ok := new(big.Rat).SetString(row[name].(json.Number).String())
			if !ok {
				t.Fatalf("%v is no number", row[name])
			}
			if w.sum[name] == nil {
				w.sum[name] = new(big.Rat)
			}
			w.sum[name].Add(w.sum[name], n)
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// compare holds readers' rows against the plain computation.
func compare(t *testing.T, got map[string]windowLine, want map[string]*sums, count string, names map[string]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d windows, the plain computation has %d", len(got), len(want))
	}
	wrong := 0
	for k, w := range want {
		g, ok := got[k]
		if !ok {
			if wrong++; wrong < 5 {
				t.Errorf("window %s is missing", k)
			}
			continue
		}
		if g.text(count) != strconv.Itoa(w.count) {
			if wrong++; wrong < 5 {
				t.Errorf("window %s counts %s, want %d", k, g.text(count), w.count)
			}
		}
		for field, aggregate := range names {
			n, ok := new(big.Rat).SetString(g.text(aggregate))
			if !ok || n.Cmp(w.sum[field]) != 0 {
				if wrong++; wrong < 5 {
					t.Errorf("window %s has %s = %s, want %s", k, aggregate, g.text(aggregate), w.sum[field].FloatString(2))
				}
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d windows differ", wrong)
	}
}

func TestFlightsGiveTheRightNumbers(t *testing.T) {
	const file = "../examples/flights/flights-20k.jsonl.gz"
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", "../examples/flights/flights.yaml")
	u.must("send", file, "--stream", "flights", "--source", "flights", "--partition", "0", "--finish")
	u.must("wait", "flights")
	want := tally(t, file, "origin", time.Hour, func(row map[string]any) time.Time {
		at, err := time.Parse(time.RFC3339, row["occurred_at"].(string))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}, "delay_min", "distance_mi")
	compare(t, u.windows("flights"), want, "flights", map[string]string{"delay_min": "delay_min", "distance_mi": "distance_mi"})
	u.verified("flights")
}

func TestEarthquakesGiveTheRightNumbers(t *testing.T) {
	const file = "../examples/earthquakes/earthquakes.jsonl.gz"
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", "../examples/earthquakes/earthquakes.yaml")
	u.must("send", file, "--stream", "earthquakes", "--source", "usgs", "--partition", "0", "--finish")
	u.must("wait", "earthquakes")
	want := tally(t, file, "net", 6*time.Hour, func(row map[string]any) time.Time {
		ms, err := row["time_ms"].(json.Number).Int64()
		if err != nil {
			t.Fatal(err)
		}
		return time.UnixMilli(ms)
	}, "mag")
	compare(t, u.windows("earthquakes"), want, "quakes", map[string]string{"mag": "mag_sum"})
	u.verified("earthquakes")
}

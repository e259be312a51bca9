package tests

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"math/big"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sums is a plain computation over a file, without Tidemark: count and sums per window.
type sums struct {
	count int
	sum   map[string]*big.Rat
}

// rowsOf reads a gzip file of JSON lines.
func rowsOf(t *testing.T, path string) (rows []map[string]any) {
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
	s := bufio.NewScanner(z)
	for s.Scan() {
		var row map[string]any
		d := json.NewDecoder(bytesReader(s.Bytes()))
		d.UseNumber()
		if err := d.Decode(&row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// number answers a member of a row exactly.
func number(t *testing.T, row map[string]any, name string) *big.Rat {
	t.Helper()
	n, ok := new(big.Rat).SetString(row[name].(json.Number).String())
	if !ok {
		t.Fatalf("%v is no number", row[name])
	}
	return n
}

// tally groups the rows of a file by key and window.
func tally(t *testing.T, path, key string, size time.Duration, at func(map[string]any) time.Time, fields ...string) map[string]*sums {
	t.Helper()
	out := map[string]*sums{}
	for _, row := range rowsOf(t, path) {
		k := row[key].(string) + " " + at(row).UTC().Truncate(size).Format(time.RFC3339)
		w := out[k]
		if w == nil {
			w = &sums{sum: map[string]*big.Rat{}}
			out[k] = w
		}
		w.add(t, row, fields)
	}
	return out
}

func (w *sums) add(t *testing.T, row map[string]any, fields []string) {
	t.Helper()
	w.count++
	for _, name := range fields {
		if w.sum[name] == nil {
			w.sum[name] = new(big.Rat)
		}
		w.sum[name].Add(w.sum[name], number(t, row, name))
	}
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

// quakeTime is when an earthquake happened.
func quakeTime(t *testing.T, row map[string]any) time.Time {
	t.Helper()
	ms, err := row["time_ms"].(json.Number).Int64()
	if err != nil {
		t.Fatal(err)
	}
	return time.UnixMilli(ms).UTC()
}

func TestEarthquakesGiveTheRightNumbers(t *testing.T) {
	const file = "../examples/earthquakes/earthquakes.jsonl.gz"
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", "../examples/earthquakes/earthquakes.yaml")
	u.must("send", file, "--stream", "earthquakes", "--source", "usgs", "--partition", "0", "--finish")
	u.must("wait", "earthquakes")
	want := tally(t, file, "net", 6*time.Hour, func(row map[string]any) time.Time { return quakeTime(t, row) }, "mag")
	compare(t, u.windows("earthquakes"), want, "quakes", map[string]string{"mag": "mag_sum"})
	u.verified("earthquakes")
}

// sequence is a session of the plain computation.
type sequence struct {
	sums
	from, to   time.Time
	first, max *big.Rat
}

// sequences groups earthquakes of one network that follow one another within less than
// gap, by "net start".
func sequences(t *testing.T, path string, gap time.Duration) map[string]*sequence {
	t.Helper()
	rows := rowsOf(t, path)
	slices.SortFunc(rows, func(a, b map[string]any) int {
		return cmp.Or(cmp.Compare(a["net"].(string), b["net"].(string)), quakeTime(t, a).Compare(quakeTime(t, b)))
	})
	out := map[string]*sequence{}
	var last *sequence
	var net string
	for _, row := range rows {
		at, mag := quakeTime(t, row), number(t, row, "mag")
		if last == nil || net != row["net"].(string) || !at.Before(last.to) {
			net = row["net"].(string)
			last = &sequence{sums: sums{sum: map[string]*big.Rat{}}, from: at, first: mag, max: mag}
			out[net+" "+at.Format(time.RFC3339)] = last
		}
		last.to = at.Add(gap)
		last.add(t, row, []string{"mag"})
		if mag.Cmp(last.max) > 0 {
			last.max = mag
		}
	}
	return out
}

// Sessions over real data that came hours and days late, slowly enough that sequences are
// published before they grow and merge.
func TestAftershocksGiveTheRightSequences(t *testing.T) {
	const file = "../examples/earthquakes/earthquakes.jsonl.gz"
	u := startUp(t, t.TempDir()+"/data")
	u.must("apply", "-f", "../examples/earthquakes/earthquakes.yaml", "-f", "../examples/earthquakes/aftershocks.yaml")
	u.must("send", file, "--stream", "earthquakes", "--source", "usgs", "--partition", "0", "--rate", "300", "--finish")
	u.must("wait", "earthquakes")
	want, plain := sequences(t, file, 2*time.Hour), map[string]*sums{}
	for k, s := range want {
		plain[k] = &s.sums
	}
	got := u.windows("earthquakes", "--job", "aftershocks")
	compare(t, got, plain, "quakes", map[string]string{"mag": "mag_sum"})
	for k, s := range want {
		g := got[k]
		first, _ := new(big.Rat).SetString(g.text("mag_first"))
		largest, _ := new(big.Rat).SetString(g.text("mag_max"))
		if !g.Start.Equal(s.from) || !g.End.Equal(s.to) || first == nil || first.Cmp(s.first) != 0 || largest == nil || largest.Cmp(s.max) != 0 {
			t.Errorf("sequence %s: %+v, want %s to %s, first %s, largest %s", k, g, s.from, s.to, s.first.FloatString(2), s.max.FloatString(2))
		}
	}
	if history := u.must("windows", "earthquakes", "--job", "aftershocks", "--history"); !strings.Contains(history, "(retracted), became ") {
		t.Error("no sequence grew or merged after it was published")
	}
	if len(want) != 187 {
		t.Errorf("%d sequences, the README says 187", len(want))
	}
	u.verified("earthquakes")
}

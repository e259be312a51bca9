package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

var cache = Kind{Name: "test", Format: 2, Cache: true}

func open(t *testing.T, path string, kind Kind) *Store {
	t.Helper()
	s, err := Open(path, kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// fill writes n entries of about 100 bytes in a few transactions.
func fill(t *testing.T, s *Store, n int) {
	t.Helper()
	for at := 0; at < n; at += 500 {
		err := s.Update(func(tx *Tx) error {
			b, err := tx.Bucket("rows")
			if err != nil {
				return err
			}
			for i := at; i < min(at+500, n); i++ {
				if err := b.Put(fmt.Appendf(nil, "key-%06d", i), bytes.Repeat([]byte{byte(i)}, 100)); err != nil {
					return err
				}
			}
			return tx.SetMeta("at", at)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func keys(t *testing.T, s *Store, walk func(b *Bucket, fn func(k, v []byte) (bool, error)) error) (out []string) {
	t.Helper()
	err := s.View(func(tx *Tx) error {
		b, err := tx.Bucket("rows")
		if err != nil {
			return err
		}
		return walk(b, func(k, v []byte) (bool, error) {
			out = append(out, string(k)+"="+string(v))
			return true, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEntriesAreOrderedAndOutliveTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "down", "a.db")
	s := open(t, path, cache)
	value := []byte("?")
	err := s.Update(func(tx *Tx) error {
		b, err := tx.Bucket("rows")
		if err != nil {
			return err
		}
		for _, k := range []string{"b2", "a", "b1", "c", "b3"} {
			value[0] = k[len(k)-1] // reused on purpose
			if err := b.Put([]byte(k), value); err != nil {
				return err
			}
		}
		return errors.Join(b.Delete([]byte("b3")), b.Delete([]byte("none")), b.Put([]byte("a"), nil))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Update(func(tx *Tx) error {
		b, _ := tx.Bucket("rows")
		_ = b.Put([]byte("zzz"), value)
		return io.ErrUnexpectedEOF
	}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("an error of the function must come back, got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path, cache)
	cases := []struct {
		want string
		walk func(b *Bucket, fn func(k, v []byte) (bool, error)) error
	}{
		{"[a= b1=1 b2=2 c=c]", func(b *Bucket, fn func(k, v []byte) (bool, error)) error { return b.Range(nil, nil, fn) }},
		{"[b1=1 b2=2]", func(b *Bucket, fn func(k, v []byte) (bool, error)) error { return b.Prefix([]byte("b"), fn) }},
		{"[b1=1]", func(b *Bucket, fn func(k, v []byte) (bool, error)) error {
			return b.Range([]byte("b"), []byte("b2"), fn)
		}},
		{"[c=c b2=2 b1=1]", func(b *Bucket, fn func(k, v []byte) (bool, error)) error { return b.Reverse([]byte("b"), nil, fn) }},
		{"[b1=1 a=]", func(b *Bucket, fn func(k, v []byte) (bool, error)) error { return b.Reverse(nil, []byte("b2"), fn) }},
	}
	for i, c := range cases {
		if got := fmt.Sprint(keys(t, s, c.walk)); got != c.want {
			t.Errorf("walk %d: got %s, want %s", i, got, c.want)
		}
	}
	_ = s.View(func(tx *Tx) error {
		b, _ := tx.Bucket("rows")
		if v, err := b.Get([]byte("a")); v == nil || err != nil {
			t.Errorf("an empty value must not read as absent: %v %v", v, err)
		}
		if v, err := b.Get([]byte("none")); v != nil || err != nil {
			t.Errorf("absent key: %v %v", v, err)
		}
		if b.Len() != 4 {
			t.Errorf("Len %d, want 4", b.Len())
		}
		none, err := tx.Bucket("never")
		if err != nil || none.Len() != 0 || none.Each(func(_, _ []byte) error { return io.EOF }) != nil {
			t.Errorf("a bucket never written must read as empty")
		}
		return nil
	})
	if err := s.Update(func(tx *Tx) error { return tx.Drop("rows") }); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(); err != nil {
		t.Fatal(err)
	}
}

func TestFileInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	open(t, path, cache)
	if _, err := Open(path, cache); !errors.Is(err, ErrLocked) {
		t.Fatalf("got %v, want ErrLocked", err)
	}
}

func TestKindAndFormat(t *testing.T) {
	strict := Kind{Name: "test", Format: 2}
	cases := []struct {
		name  string
		kind  Kind
		want  error
		aside bool
	}{
		{"another kind", Kind{Name: "other", Format: 2, Cache: true}, ErrForeign, false},
		{"an older program", Kind{Name: "test", Format: 1, Cache: true}, ErrNewer, false},
		{"a newer program, a cache", Kind{Name: "test", Format: 3, Cache: true}, nil, true},
		{"a newer program, no cache", Kind{Name: "test", Format: 3}, ErrOlder, false},
		{"the same", strict, nil, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.db")
			s := open(t, path, strict)
			fill(t, s, 10)
			_ = s.Close()
			s, err := Open(path, c.kind)
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err != nil {
				return
			}
			defer s.Close()
			if got := s.SetAside() != nil; got != c.aside {
				t.Fatalf("set aside %v, want %v", got, c.aside)
			}
		})
	}
	t.Run("a bbolt file of something else", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a.db")
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err })
		_ = db.Close()
		if _, err := Open(path, cache); !errors.Is(err, ErrForeign) {
			t.Fatalf("got %v, want ErrForeign", err)
		}
	})
}

// TestDamageIsFound damages a good file in many ways. Whatever is done to it, Open must
// answer either every entry as it was or ErrDamaged, and never crash.
func TestDamageIsFound(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.db")
	s := open(t, good, cache)
	fill(t, s, 250)
	_ = s.Close()
	half, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, good, cache)
	fill(t, s, 1200)
	want := fmt.Sprint(keys(t, s, func(b *Bucket, fn func(k, v []byte) (bool, error)) error { return b.Range(nil, nil, fn) }))
	_ = s.Close()
	image, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	page, tries := os.Getpagesize(), 0
	try := func(name string, image []byte) (damaged bool) {
		t.Helper()
		// A name of its own each time: bbolt leaves its memory map behind when it panics
		// at opening, and truncating a file that is mapped many times is slow.
		tries++
		path := filepath.Join(dir, fmt.Sprintf("try-%d.db", tries))
		defer os.Remove(path)
		// Most of the file is a hole; writing it out each time would be slow.
		if err := errors.Join(os.WriteFile(path, bytes.TrimRight(image, "\x00"), 0o600), os.Truncate(path, int64(len(image)))); err != nil {
			t.Fatal(err)
		}
		strict := Kind{Name: cache.Name, Format: cache.Format}
		s, err := Open(path, strict)
		if errors.Is(err, ErrDamaged) {
			return true
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer s.Close()
		got := fmt.Sprint(keys(t, s, func(b *Bucket, fn func(k, v []byte) (bool, error)) error { return b.Range(nil, nil, fn) }))
		if got != want {
			t.Fatalf("%s: silent damage", name)
		}
		return false
	}
	found := 0
	rng := rand.New(rand.NewPCG(1, 2))
	// The file is longer than what is used of it.
	used := len(bytes.TrimRight(image, "\x00"))
	for at := 0; at < used; at += page {
		zeroed := bytes.Clone(image)
		clear(zeroed[at : at+page])
		if try(fmt.Sprintf("page %d zeroed", at/page), zeroed) {
			found++
		}
		if at+page <= len(half) && at >= 2*page {
			stale := bytes.Clone(image)
			copy(stale[at:at+page], half[at:at+page])
			if try(fmt.Sprintf("page %d lost its last write", at/page), stale) {
				found++
			}
		}
		flipped := bytes.Clone(image)
		flipped[at+rng.IntN(page)] ^= 1 << rng.IntN(8)
		try(fmt.Sprintf("page %d bit flip", at/page), flipped)
		if try(fmt.Sprintf("cut at page %d", at/page), image[:at]) {
			found++
		}
	}
	if found == 0 {
		t.Fatal("no damage was found at all: the test does not reach what it should")
	}
	if !try("zeroed", make([]byte, len(image))) {
		t.Fatal("a zeroed file must be found")
	}
}

func TestDamagedCacheIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	for round := range kept + 2 {
		if err := os.WriteFile(path, bytes.Repeat([]byte{byte(round)}, 100000), 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, path, cache)
		if s.SetAside() == nil {
			t.Fatal("nothing was reported")
		}
		if _, err := os.Stat(s.SetAside().Path); err != nil {
			t.Fatal(err)
		}
		fill(t, s, 10)
		_ = s.Close()
	}
	got, _ := filepath.Glob(path + ".damaged-*")
	if len(got) != kept {
		t.Fatalf("%d files kept aside, want %d: %v", len(got), kept, got)
	}
	s := open(t, path, cache)
	if s.SetAside() != nil {
		t.Fatal("a good file was set aside")
	}
	if err := s.Reset("stale", "test"); err != nil {
		t.Fatal(err)
	}
	if n := len(keys(t, s, func(b *Bucket, fn func(k, v []byte) (bool, error)) error { return b.Range(nil, nil, fn) })); n != 0 {
		t.Fatalf("%d entries after Reset", n)
	}
}

func TestDamageInUseStopsTheStore(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "a.db"), cache)
	if err := s.View(func(*Tx) error { panic("as bbolt does") }); !errors.Is(err, ErrDamaged) {
		t.Fatalf("got %v, want ErrDamaged", err)
	}
	if err := s.Update(func(*Tx) error { return nil }); !errors.Is(err, ErrDamaged) {
		t.Fatalf("a damaged file must not be written, got %v", err)
	}
	if err := s.Reset("damaged", "test"); err != nil {
		t.Fatal(err)
	}
	fill(t, s, 10)
}

func BenchmarkUpdate100kEntries(b *testing.B) {
	s, err := Open(filepath.Join(b.TempDir(), "a.db"), cache)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	value := make([]byte, 100)
	for b.Loop() {
		err := s.Update(func(tx *Tx) error {
			rows, err := tx.Bucket("rows")
			if err != nil {
				return err
			}
			for i := range 100000 {
				if err := rows.Put(fmt.Appendf(nil, "key-%06d", i), value); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

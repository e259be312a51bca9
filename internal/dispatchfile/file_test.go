package dispatchfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/pkg/effect"
	"github.com/tidemark-mesh/tidemark/pkg/revision"
)

var journal = Identity{Stream: "TM_orders_EFF_00", Created: 1796032800000000001}

var ours = checkpoint.Kind{Name: Kind, Format: Format}

func entry(n byte, attempt uint32, seq uint64) Entry {
	return Entry{Key: effect.EffectKey{n, 1}, Attempt: attempt, Epoch: 7, Digest: revision.Digest{n, 2}, Seq: seq}
}

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// filled makes a file with three commits and closes it.
func filled(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dispatch.db")
	f := open(t, path)
	must(t, f.Bind(context.Background(), journal))
	must(t, f.Append(context.Background(), []Entry{entry(2, 1, 10), entry(1, 1, 10)}))
	must(t, f.Append(context.Background(), []Entry{entry(1, 2, 20)}))
	must(t, f.Append(context.Background(), []Entry{entry(3, 1, 300)}))
	must(t, f.Close())
	return path
}

func wantEntries(t *testing.T, got []Entry, err error, want ...Entry) {
	t.Helper()
	must(t, err)
	if !slices.Equal(got, want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestAttemptsOutliveTheProcess(t *testing.T) {
	f := open(t, filled(t))
	if id, bound := f.Identity(); !bound || id != journal {
		t.Fatalf("identity %+v", id)
	}
	last, err := f.Last()
	must(t, err)
	if last != 300 {
		t.Fatalf("last sequence %d", last)
	}
	all, err := f.Everything()
	wantEntries(t, all, err, entry(1, 1, 10), entry(2, 1, 10), entry(1, 2, 20), entry(3, 1, 300))
	lost, err := f.After(10)
	wantEntries(t, lost, err, entry(1, 2, 20), entry(3, 1, 300))
	lost, err = f.After(300)
	wantEntries(t, lost, err)
}

func TestNewFileKnowsNothing(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "dispatch.db"))
	last, err := f.Last()
	must(t, err)
	if _, bound := f.Identity(); bound || last != 0 {
		t.Fatalf("bound %v, last %d", bound, last)
	}
	if err := f.Append(context.Background(), []Entry{entry(1, 1, 1)}); err == nil {
		t.Fatal("an unbound file took an attempt")
	}
}

func TestAttemptIsWrittenTwiceOnlyAsTheSame(t *testing.T) {
	f := open(t, filled(t))
	must(t, f.Append(context.Background(), []Entry{entry(1, 2, 20)}))
	if err := f.Append(context.Background(), []Entry{entry(4, 1, 301), entry(1, 2, 21)}); err == nil {
		t.Fatal("one attempt stands at two sequences")
	}
	all, err := f.Everything()
	wantEntries(t, all, err, entry(1, 1, 10), entry(2, 1, 10), entry(1, 2, 20), entry(3, 1, 300))
	for _, e := range []Entry{entry(4, 0, 1), entry(4, 1, 0), {Attempt: 1, Seq: 1, Digest: revision.Digest{1}}, {Key: effect.EffectKey{1}, Attempt: 1, Seq: 1}} {
		if err := f.Append(context.Background(), []Entry{e}); err == nil {
			t.Errorf("%+v is taken", e)
		}
	}
}

func TestAnotherJournalIsRefusedUntilRecovered(t *testing.T) {
	f := open(t, filled(t))
	other := Identity{Stream: journal.Stream, Created: journal.Created + 1}
	if err := f.Bind(context.Background(), other); !errors.Is(err, checkpoint.ErrForeign) {
		t.Fatalf("bind: %v", err)
	}
	must(t, f.Bind(context.Background(), journal))
	must(t, f.Recovered(context.Background(), other))
	lost, err := f.After(0)
	wantEntries(t, lost, err)
	must(t, f.Append(context.Background(), []Entry{entry(9, 1, 5)}))
	must(t, f.Close())
	f = open(t, f.store.Path())
	all, err := f.Everything()
	wantEntries(t, all, err, entry(1, 1, 0), entry(1, 2, 0), entry(2, 1, 0), entry(3, 1, 0), entry(9, 1, 5))
	if id, _ := f.Identity(); id != other {
		t.Fatalf("identity %+v", id)
	}
	if err := f.Append(context.Background(), []Entry{entry(3, 1, 6)}); err == nil {
		t.Fatal("a recovered attempt was made again")
	}
}

func TestFileIsLocked(t *testing.T) {
	path := filled(t)
	open(t, path)
	if _, err := Open(path); !errors.Is(err, checkpoint.ErrLocked) {
		t.Fatalf("got %v", err)
	}
}

func TestEndedContextWritesNothing(t *testing.T) {
	f := open(t, filled(t))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.Append(ctx, []Entry{entry(8, 1, 400)}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	lost, err := f.After(300)
	wantEntries(t, lost, err)
}

// Nothing that is wrong with the file is healed by making a new one: it would forget what
// was sent.
func TestWrongFilesAreRefusedAndLeftAlone(t *testing.T) {
	spoil := func(change func(data []byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			data, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, change(data), 0o600))
		}
	}
	another := func(kind checkpoint.Kind) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			must(t, os.Remove(path))
			s, err := checkpoint.Open(path, kind)
			must(t, err)
			must(t, s.Close())
		}
	}
	for name, c := range map[string]struct {
		spoil func(*testing.T, string)
		want  error
	}{
		"empty":     {spoil(func([]byte) []byte { return nil }), checkpoint.ErrDamaged},
		"cut short": {spoil(func(data []byte) []byte { return data[:3*4096] }), checkpoint.ErrDamaged},
		"zeroed":    {spoil(func(data []byte) []byte { clear(data); return data }), checkpoint.ErrDamaged},
		"a page zeroed": {spoil(func(data []byte) []byte {
			for at := 2 * 4096; at < len(data) && at < 16*4096; at += 4096 {
				clear(data[at : at+4096])
			}
			return data
		}), checkpoint.ErrDamaged},
		"no database":  {spoil(func(data []byte) []byte { return []byte("hello") }), checkpoint.ErrDamaged},
		"another kind": {another(checkpoint.Kind{Name: "windower", Format: 1}), checkpoint.ErrForeign},
		"newer":        {another(checkpoint.Kind{Name: Kind, Format: Format + 1}), checkpoint.ErrNewer},
		"older":        {another(checkpoint.Kind{Name: Kind, Format: Format - 1}), checkpoint.ErrOlder},
	} {
		t.Run(name, func(t *testing.T) {
			path := filled(t)
			c.spoil(t, path)
			before, err := os.ReadFile(path)
			must(t, err)
			if f, err := Open(path); !errors.Is(err, c.want) {
				if f != nil {
					_ = f.Close()
				}
				t.Fatalf("got %v, want %v", err, c.want)
			}
			after, err := os.ReadFile(path)
			must(t, err)
			if !slices.Equal(before, after) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestBucketsThatDoNotFitAreDamage(t *testing.T) {
	for name, change := range map[string]func(tx *checkpoint.Tx) error{
		"an attempt without order": func(tx *checkpoint.Tx) error {
			b, err := tx.Bucket(attemptsBucket)
			if err != nil {
				return err
			}
			return b.Put([]byte("x"), []byte("y"))
		},
		"an order without attempt": func(tx *checkpoint.Tx) error {
			b, err := tx.Bucket(attemptsBucket)
			if err != nil {
				return err
			}
			key, _ := new(entry(1, 1, 10)).encode()
			if err := b.Delete(key[8:]); err != nil {
				return err
			}
			return b.Put([]byte("x"), []byte("y"))
		},
		"no journal": func(tx *checkpoint.Tx) error { return tx.SetMeta(JournalMeta, Identity{}) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filled(t)
			s, err := checkpoint.Open(path, ours)
			must(t, err)
			must(t, errors.Join(s.Update(change), s.Close()))
			if _, err := Open(path); !errors.Is(err, checkpoint.ErrDamaged) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

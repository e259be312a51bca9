package windower

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// outcomes answers how often snapshots of a unit came to an outcome.
func (u *unit) outcomes(t testing.TB, outcome string) int {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(u.metrics.snapshots)
	families, err := r.Gather()
	must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == outcome {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

func (w *world) snapshots(pp int) []snapshotRef {
	w.t.Helper()
	u := w.unit(pp, "")
	refs, err := u.snapshots().list(deadline(w.t))
	must(w.t, err)
	return refs
}

func objectsOf(t testing.TB) jetstream.ObjectStore {
	t.Helper()
	objects, err := shared.conn.JS.ObjectStore(deadline(t), subject.SnapshotBucket)
	must(t, err)
	return objects
}

// mine answers the names of the world's objects.
func (w *world) objects() (names []string) {
	w.t.Helper()
	// A list that is asked for while others delete objects may never come to its end.
	var all []*jetstream.ObjectInfo
	err := context.DeadlineExceeded
	for ctx := deadline(w.t); errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil; {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		all, err = objectsOf(w.t).List(attempt)
		cancel()
	}
	if errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil
	}
	must(w.t, err)
	for _, o := range all {
		if strings.HasPrefix(o.Name, w.bs.Name+"_") {
			names = append(names, o.Name)
		}
	}
	return names
}

// snapshotted runs traffic through a unit that ends with a handoff, n times, so that n
// snapshots stand at n COMMITs.
func (w *world) snapshotted(n int) (last uint64) {
	w.t.Helper()
	for i := range n {
		u := w.unit(0, w.dir)
		yield := make(chan struct{})
		u.yield = yield
		r := start(w.t, u)
		last = w.traffic(0, i*3, 3, 50)
		r.reached(w.t, last+1)
		close(yield)
		must(w.t, r.end(w.t))
		if u.outcomes(w.t, snapshotStored) != 1 {
			w.t.Fatalf("round %d: no snapshot was stored at the handoff", i)
		}
	}
	return last
}

func TestHandoffLeavesASnapshotAtTheLastCommit(t *testing.T) {
	w := newWorld(t, 1)
	w.snapshotted(1)
	commits := w.read(0).commits
	refs := w.snapshots(0)
	if len(refs) != 1 {
		t.Fatalf("%d snapshots", len(refs))
	}
	if want := commits[len(commits)-1].AppendJSON(nil); !bytes.Equal(want, refs[0].State.Commit) {
		t.Errorf("the snapshot stands at %s, the journal ends with %s", refs[0].State.Commit, want)
	}
	if leftovers, err := filepath.Glob(w.part(0).file(w.dir) + ".*"); err != nil || len(leftovers) != 0 {
		t.Errorf("left beside the checkpoint: %v, %v", leftovers, err)
	}
	// The next owner has nothing but the snapshot, and reads nothing twice.
	u := w.unit(0, t.TempDir())
	r := start(t, u)
	last := w.traffic(0, 3, 3, 50)
	r.reached(t, last+1)
	r.drain(t)
	w.same(0)
	if n := u.outcomes(t, snapshotRestored); n != 1 {
		t.Errorf("%d snapshots were restored", n)
	}
	// What was restored is a checkpoint like any other: the process starts again with it.
	u = w.unit(0, filepath.Dir(filepath.Dir(u.file)))
	r = start(t, u)
	r.reached(t, w.traffic(0, 6, 2, 50)+1)
	r.crash(t)
	w.same(0)
	if n := u.outcomes(t, snapshotRestored); n != 0 {
		t.Errorf("%d snapshots were restored over a good file", n)
	}
}

func TestTheNewestSnapshotsAreKept(t *testing.T) {
	w := newWorld(t, 1)
	// What an upload that was cut off leaves behind goes with the next.
	orphan := subject.Snapshot(w.bs.Name, w.pol.Job, 1, 0, "1-cut-off")
	_, err := objectsOf(t).PutBytes(deadline(t), orphan, []byte("half"))
	must(t, err)
	w.snapshotted(snapshotsKept + 2)
	refs := w.snapshots(0)
	if len(refs) != snapshotsKept {
		t.Fatalf("%d snapshots are named", len(refs))
	}
	for i := 1; i < len(refs); i++ {
		if refs[i-1].State.Seq <= refs[i].State.Seq {
			t.Error("the newest is not the first")
		}
	}
	if names := w.objects(); len(names) != snapshotsKept+2 { // and the pointer, and what was cut off
		t.Errorf("objects %v", names)
	}
	u := w.unit(0, w.dir)
	u.snapshotEvery = time.Nanosecond
	r := start(t, u)
	r.reached(t, w.traffic(0, 30, 1, 5)+1)
	await(t, "what was cut off is swept", func() bool { return !slices.Contains(w.objects(), orphan) })
	r.crash(t)
	if names := w.objects(); len(names) != snapshotsKept+1 {
		t.Errorf("objects %v", names)
	}
}

// TestDamagedSnapshots damages the newest snapshot in every way there is: an older one is
// used, and when all are damaged, all journals are read. The records never change.
func TestDamagedSnapshots(t *testing.T) {
	ways := map[string]func(t *testing.T, name string, data []byte){
		"a flipped byte": func(t *testing.T, name string, data []byte) {
			data[len(data)/2] ^= 1
			_, err := objectsOf(t).PutBytes(deadline(t), name, data)
			must(t, err)
		},
		"cut short": func(t *testing.T, name string, data []byte) {
			_, err := objectsOf(t).PutBytes(deadline(t), name, data[:len(data)-7])
			must(t, err)
		},
		"longer": func(t *testing.T, name string, data []byte) {
			_, err := objectsOf(t).PutBytes(deadline(t), name, append(data, 0))
			must(t, err)
		},
		"deleted": func(t *testing.T, name string, _ []byte) {
			must(t, objectsOf(t).Delete(deadline(t), name))
		},
		"a chunk is missing": func(t *testing.T, name string, _ []byte) {
			info, err := objectsOf(t).GetInfo(deadline(t), name)
			must(t, err)
			st, err := shared.conn.JS.Stream(deadline(t), "OBJ_"+subject.SnapshotBucket)
			must(t, err)
			must(t, st.Purge(deadline(t), jetstream.WithPurgeSubject("$O."+subject.SnapshotBucket+".C."+info.NUID)))
		},
	}
	for way, damage := range ways {
		t.Run(way, func(t *testing.T) {
			w := newWorld(t, 1)
			last := w.snapshotted(2)
			refs := w.snapshots(0)
			for i, ref := range refs {
				data, err := objectsOf(t).GetBytes(deadline(t), ref.Name)
				must(t, err)
				damage(t, ref.Name, data)
				u := w.unit(0, t.TempDir())
				r := start(t, u)
				r.reached(t, last+1)
				last = w.traffic(0, 6+i, 1, 50)
				r.reached(t, last+1)
				r.drain(t)
				w.same(0)
				if refused, restored := u.outcomes(t, snapshotRefused), u.outcomes(t, snapshotRestored); refused != i+1 || restored != len(refs)-1-i {
					t.Errorf("%d damaged: %d were refused, %d restored", i+1, refused, restored)
				}
			}
		})
	}
}

// A snapshot must belong to this journal, this document and this program.
func TestForeignSnapshots(t *testing.T) {
	w := newWorld(t, 1)
	last := w.snapshotted(1)
	good := w.snapshots(0)[0]
	objects := objectsOf(t)
	pointerName := subject.SnapshotPointer(w.bs.Name, w.pol.Job, 1, 0)
	changed := map[string]func(r *snapshotRef){
		"policy":   func(r *snapshotRef) { r.State.PolicyDigest = "another" },
		"core":     func(r *snapshotRef) { r.State.CoreVersion++ },
		"format":   func(r *snapshotRef) { r.Format++ },
		"journal":  func(r *snapshotRef) { r.State.Windows++ },
		"sequence": func(r *snapshotRef) { r.State.Seq-- },
		"ahead":    func(r *snapshotRef) { r.State.Seq += 1 << 20 },
		"commit":   func(r *snapshotRef) { r.State.Commit = []byte(`{}`) },
	}
	for what, change := range changed {
		t.Run(what, func(t *testing.T) {
			ref := good
			change(&ref)
			_, err := objects.PutBytes(deadline(t), pointerName, encode(pointer{Format: pointerFormat, Snapshots: []snapshotRef{ref}}))
			must(t, err)
			u := w.unit(0, t.TempDir())
			r := start(t, u)
			r.reached(t, last+1)
			r.drain(t)
			w.same(0)
			if refused, restored := u.outcomes(t, snapshotRefused), u.outcomes(t, snapshotRestored); refused != 1 || restored != 0 {
				t.Errorf("%d were refused, %d restored", refused, restored)
			}
		})
	}
	t.Run("pointer", func(t *testing.T) {
		_, err := objects.PutBytes(deadline(t), pointerName, []byte("{"))
		must(t, err)
		u := w.unit(0, t.TempDir())
		yield := make(chan struct{})
		u.yield = yield
		r := start(t, u)
		r.reached(t, last+1)
		last = w.traffic(0, 3, 1, 50)
		r.reached(t, last+1)
		close(yield)
		must(t, r.end(t))
		w.same(0)
		if refs := w.snapshots(0); len(refs) != 1 {
			t.Errorf("a pointer that cannot be read is not replaced: %d snapshots", len(refs))
		}
	})
}

// Snapshots are made while the loop goes on, and at its end nothing of them is left running.
func TestSnapshotsBesideTheLoop(t *testing.T) {
	w := newWorld(t, 1)
	u := w.unit(0, w.dir)
	u.snapshotEvery = time.Nanosecond
	r := start(t, u)
	for h := range 8 {
		r.reached(t, w.traffic(0, h, 1, 200)+1)
	}
	await(t, "two snapshots", func() bool {
		w.events(0, w.order("key-0", epoch.Add(8*hour), 1)) // a checkpoint needs something new
		return u.outcomes(t, snapshotStored) >= 2
	})
	r.crash(t)
	w.same(0)
	u = w.unit(0, t.TempDir())
	r = start(t, u)
	r.reached(t, w.traffic(0, 9, 1, 200)+1)
	r.drain(t)
	w.same(0)
	if n := u.outcomes(t, snapshotRestored); n != 1 {
		t.Errorf("%d snapshots were restored", n)
	}
}

func sampleStore(t testing.TB, entries int) *checkpoint.Store {
	t.Helper()
	store, err := checkpoint.Open(filepath.Join(t.TempDir(), "f.db"), checkpointKind)
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	must(t, store.Update(func(tx *checkpoint.Tx) error {
		b, err := tx.Bucket(stateBucket)
		if err != nil {
			return err
		}
		for i := range entries {
			if err := b.Put(fmt.Appendf(nil, "key-%06d", i), bytes.Repeat([]byte{byte(i)}, i%300)); err != nil {
				return err
			}
		}
		return tx.SetMeta(stateKey, saved{Commit: []byte(`{"x":1}`), Seq: 7})
	}))
	return store
}

func TestSnapshotFormat(t *testing.T) {
	store := sampleStore(t, 5000)
	var out bytes.Buffer
	state, err := writeSnapshot(&out, store)
	must(t, err)
	n := 0
	got, err := readSnapshot(bytes.NewReader(out.Bytes()), func(key, value []byte) error {
		if string(key) != fmt.Sprintf("key-%06d", n) || !bytes.Equal(value, bytes.Repeat([]byte{byte(n)}, n%300)) {
			t.Fatalf("entry %d is %q = %x", n, key, value)
		}
		n++
		return nil
	})
	if err != nil || n != 5000 || !sameCommit(got, state) {
		t.Fatalf("%d entries at %+v, %v", n, got, err)
	}
	for _, cut := range []int{0, 1, 10, 100, out.Len() / 2, out.Len() - 1} {
		if _, err := readSnapshot(bytes.NewReader(out.Bytes()[:cut]), func(_, _ []byte) error { return nil }); !errors.Is(err, errSnapshot) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	if _, err := writeSnapshot(io.Discard, emptyStore(t)); err == nil {
		t.Error("a snapshot of nothing was written")
	}
}

func emptyStore(t *testing.T) *checkpoint.Store {
	store, err := checkpoint.Open(filepath.Join(t.TempDir(), "e.db"), checkpointKind)
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func FuzzReadSnapshot(f *testing.F) {
	var out bytes.Buffer
	if _, err := writeSnapshot(&out, sampleStore(f, 20)); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Add([]byte(snapshotHeader))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries := 0
		_, err := readSnapshot(bytes.NewReader(data), func(key, _ []byte) error {
			if len(key) == 0 {
				t.Fatal("an empty key")
			}
			entries++
			return nil
		})
		if err != nil && !errors.Is(err, errSnapshot) {
			t.Fatalf("after %d entries: %v", entries, err)
		}
	})
}

func TestUploadsArePaced(t *testing.T) {
	fake := clock.NewFake(time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC))
	p := &pacedReader{ctx: context.Background(), r: bytes.NewReader(make([]byte, 2*uploadBurst)), clock: fake}
	done := make(chan int64, 1)
	go func() {
		n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{p}, make([]byte, uploadChunk))
		done <- n
	}()
	fake.AwaitTimers(1)
	fake.Advance(uploadEvery)
	fake.AwaitTimers(1)
	select {
	case <-done:
		t.Fatal("everything went out at once")
	default:
	}
	fake.Advance(uploadEvery)
	if n := <-done; n != 2*uploadBurst {
		t.Errorf("%d bytes", n)
	}
}

func TestNoSnapshotWithoutRoom(t *testing.T) {
	w := newWorld(t, 1)
	u := w.unit(0, w.dir)
	yield := make(chan struct{})
	u.yield = yield
	r := start(t, u)
	r.reached(t, w.traffic(0, 0, 2, 5)+1)
	must(t, os.MkdirAll(u.file+".snapshot/in-the-way", 0o755)) // the file beside the checkpoint cannot be made
	close(yield)
	must(t, r.end(t)) // it hands over all the same
	if n := u.outcomes(t, snapshotFailed); n != 1 || len(w.snapshots(0)) != 0 {
		t.Errorf("%d failed", n)
	}
	w.same(0)
}

package tests

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// unpack writes what a tar.gz holds under dir.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil || !filepath.IsLocal(h.Name) {
			t.Fatalf("%s: %q %v", archive, h.Name, err)
		}
		path := filepath.Join(dir, h.Name)
		if h.FileInfo().IsDir() {
			err = os.MkdirAll(path, 0o750)
		} else {
			err = unpackFile(path, h.FileInfo().Mode(), r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func unpackFile(path string, mode os.FileMode, from io.Reader) error {
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// Data directories that earlier binaries wrote (scripts/fixture.sh) open: the rows are the
// same, new events go on from them, verify is green over old and new.
func TestDataDirectoriesOfEarlierFormatsOpen(t *testing.T) {
	archives, err := filepath.Glob("testdata/data-format-*.tar.gz")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no data directories to open: %v", err)
	}
	for _, archive := range archives {
		t.Run(filepath.Base(archive), func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			unpack(t, archive, data)
			want, err := os.ReadFile(strings.TrimSuffix(archive, ".tar.gz") + ".ndjson")
			if err != nil {
				t.Fatal(err)
			}
			u := startUp(t, data)
			if got := u.must("windows", "clicks", "-o", "ndjson"); got != string(want) || got == "" {
				t.Errorf("the rows are\n%s\nthey were\n%s", got, want)
			}
			var more strings.Builder
			for i := range 300 {
				fmt.Fprintf(&more, `{"id":"more-%d","user":"user-%d","n":1,"at":%d}`+"\n", i, i%7, 1740816000000+int64(i)*2000)
			}
			u.must("send", write(t, "more.jsonl", more.String()), "--stream", "clicks", "--source", "web", "--partition", "0", "--finish")
			u.must("wait", "clicks")
			rows, clicks := u.windows("clicks"), 0
			for _, row := range rows {
				var n int
				fmt.Sscan(row.text("clicks"), &n)
				clicks += n
			}
			if clicks != 800 {
				t.Errorf("%d events count in %d windows, want the 500 of then and the 300 of now", clicks, len(rows))
			}
			u.verified("clicks")
		})
	}
}

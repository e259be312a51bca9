package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// Bounds of one request: small enough for the server's 1 MiB payload, large enough that
// a frame fills.
const (
	chunkBytes  = 256 << 10
	chunkLines  = 4096
	lineMax     = 768 << 10 // a longer line cannot travel in one message
	tokenSample = 64 << 10
)

// counter counts bytes read from the file itself, for the progress bar.
type counter struct {
	io.Reader
	n atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// newInput names the file by its path, size and first bytes: the same file sent again is
// recognised, another one under the same name is not.
func newInput(path string, f *os.File) (*input, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, refused(err)
	}
	if info.IsDir() {
		return nil, usage(fmt.Errorf("%s is a directory; give a file", path))
	}
	in := &input{size: info.Size(), closers: []io.Closer{f}}
	if info.Mode().IsRegular() {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return nil, refused(err)
		}
		head := make([]byte, tokenSample)
		n, err := f.ReadAt(head, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, refused(err)
		}
		sum := sha256.Sum256(fmt.Appendf(nil, "%s|%d|%d|%s", absolute, info.Size(), info.ModTime().UnixNano(), head[:n]))
		in.token = hex.EncodeToString(sum[:16])
	}
	in.raw = &counter{Reader: f}
	in.Reader = in.raw
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(in.raw)
		if err != nil {
			return nil, usage(fmt.Errorf("%s ends in .gz but is not gzip: %w", path, err))
		}
		in.Reader, in.closers = z, append(in.closers, z)
	}
	return in, nil
}

// chunk is one request: whole lines, the last of which is line number last (from 1).
type chunk struct {
	body        []byte
	lines       int
	first, last uint64
}

// cutter cuts an input into chunks of whole events.
type cutter struct {
	in          *bufio.Reader
	contentType string
	header      []byte // csv: the header row, repeated in every chunk
	line        uint64
	csv         bool
	most        int // lines in a chunk
}

// newCutter answers a cutter of chunks of at most most lines.
func newCutter(in io.Reader, format string, most int) (*cutter, error) {
	c := &cutter{in: bufio.NewReaderSize(in, 1<<20), most: most}
	if bom, err := c.in.Peek(3); err == nil && bytes.Equal(bom, []byte("\xef\xbb\xbf")) {
		c.in.Discard(3) // some editors and spreadsheets write it; it is no part of the first line
	}
	switch format {
	case "jsonl":
		c.contentType = "application/x-ndjson"
	case "cloudevents":
		c.contentType = "application/cloudevents+ndjson"
		if first, err := firstByte(c.in); err == nil && first == '[' {
			c.contentType = "application/cloudevents-batch+json"
			return c, c.unpackArray()
		}
	case "csv":
		c.contentType, c.csv = "text/csv", true
		header, err := c.record()
		if errors.Is(err, io.EOF) {
			return nil, usage(errors.New("the CSV file is empty: its first row must name the columns"))
		}
		if err != nil {
			return nil, err
		}
		c.header = append(bytes.TrimRight(header, "\r\n"), '\n')
	default:
		return nil, usage(fmt.Errorf("--format %q: choose jsonl, csv or cloudevents", format))
	}
	return c, nil
}

// next answers the next chunk, or io.EOF.
func (c *cutter) next() (chunk, error) {
	out := chunk{body: append(make([]byte, 0, chunkBytes+4096), c.header...), first: c.line}
	for out.lines < c.most && len(out.body) < chunkBytes {
		line, err := c.record()
		if errors.Is(err, io.EOF) {
			if out.lines == 0 {
				return chunk{}, io.EOF
			}
			out.last = c.line
			return out, nil
		}
		if err != nil {
			return chunk{}, err
		}
		c.line++
		if !c.csv && len(bytes.TrimSpace(line)) == 0 {
			continue // an empty line is no event
		}
		if len(line) > lineMax {
			return chunk{}, refused(fmt.Errorf("line %d has %d bytes; at most %d fit into one message; shorten it or take it out of the file", c.line, len(line), lineMax))
		}
		out.body = append(out.body, line...)
		if line[len(line)-1] != '\n' {
			out.body = append(out.body, '\n')
		}
		out.lines++
	}
	out.last = c.line
	return out, nil
}

// record answers the next line; in CSV a quoted field may run over several.
func (c *cutter) record() ([]byte, error) {
	line, err := c.in.ReadBytes('\n')
	for c.csv && err == nil && bytes.Count(line, []byte{'"'})%2 == 1 {
		var more []byte
		more, err = c.in.ReadBytes('\n')
		line = append(line, more...)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, refused(fmt.Errorf("read after line %d: %w", c.line, err))
	}
	if len(line) == 0 {
		return nil, io.EOF
	}
	return line, nil
}

// firstByte peeks at the first byte that is no white space.
func firstByte(r *bufio.Reader) (byte, error) {
	for n := 1; n <= 4096; n++ {
		head, err := r.Peek(n)
		if err != nil {
			return 0, err
		}
		if b := head[n-1]; b != ' ' && b != '\n' && b != '\r' && b != '\t' {
			return b, nil
		}
	}
	return 0, errors.New("no JSON begins in the first 4096 bytes")
}

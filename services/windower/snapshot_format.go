package windower

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/s2"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
)

// A snapshot is the content of a checkpoint file in a form that does not know bbolt, as
// one s2 stream:
//
//	"tidemark snapshot 1\n"
//	the saved state as one line of JSON
//	entries in key order: uvarint length of the key (> 0), key, uvarint length of the value, value
//	uvarint 0, uvarint number of entries
const snapshotHeader = "tidemark snapshot 1\n"

// Bounds of what is believed when a snapshot is read.
const (
	snapshotLineMax  = 1 << 20
	snapshotEntryMax = 1 << 30
)

// errSnapshot: a snapshot is not what it should be.
var errSnapshot = errors.New("the snapshot is damaged")

// writeSnapshot writes the content of store, as it stands at one COMMIT, and answers which.
func writeSnapshot(w io.Writer, store *checkpoint.Store) (state saved, err error) {
	// One goroutine: the loop beside it needs the processors more than this does.
	out := s2.NewWriter(w, s2.WriterConcurrency(1))
	err = store.View(func(tx *checkpoint.Tx) error {
		found, err := tx.Meta(stateKey, &state)
		if err != nil {
			return err
		}
		if !found || len(state.Commit) == 0 {
			return errors.New("there is no checkpoint yet")
		}
		bucket, err := tx.Bucket(stateBucket)
		if err != nil {
			return err
		}
		return writeEntries(out, state, bucket)
	})
	return state, errors.Join(err, out.Close())
}

func writeEntries(out io.Writer, state saved, bucket *checkpoint.Bucket) error {
	line, err := json.Marshal(state)
	if err != nil {
		return err
	}
	buf := append([]byte(snapshotHeader), line...)
	if _, err := out.Write(append(buf, '\n')); err != nil {
		return err
	}
	n := uint64(0)
	err = bucket.Each(func(key, value []byte) error {
		n++
		buf = binary.AppendUvarint(buf[:0], uint64(len(key)))
		buf = append(buf, key...)
		buf = binary.AppendUvarint(buf, uint64(len(value)))
		buf = append(buf, value...)
		_, err := out.Write(buf)
		return err
	})
	if err != nil {
		return err
	}
	buf = binary.AppendUvarint(binary.AppendUvarint(buf[:0], 0), n)
	_, err = out.Write(buf)
	return err
}

// readSnapshot hands every entry to put and answers the state that the snapshot stands
// at. Anything that does not fit is errSnapshot; put's errors are its own. Key and value
// are valid until the next call.
func readSnapshot(r io.Reader, put func(key, value []byte) error) (state saved, err error) {
	in := bufio.NewReaderSize(s2.NewReader(r), 1<<20)
	header := make([]byte, len(snapshotHeader))
	if _, err := io.ReadFull(in, header); err != nil || string(header) != snapshotHeader {
		return state, damagedSnapshot("it does not begin as one", err)
	}
	line, err := readLine(in)
	if err != nil {
		return state, err
	}
	if err := json.Unmarshal(line, &state); err != nil {
		return state, damagedSnapshot("its state cannot be read", err)
	}
	var buf []byte
	for n := uint64(0); ; n++ {
		size, err := binary.ReadUvarint(in)
		if err != nil {
			return state, damagedSnapshot("it ends early", err)
		}
		if size == 0 {
			if total, err := binary.ReadUvarint(in); err != nil || total != n {
				return state, damagedSnapshot(fmt.Sprintf("it holds %d entries of %d", n, total), err)
			}
			return state, nil
		}
		var key, value []byte
		if key, buf, err = readPart(in, buf[:0], size); err != nil {
			return state, err
		}
		if size, err = binary.ReadUvarint(in); err != nil {
			return state, damagedSnapshot("it ends early", err)
		}
		split := len(key)
		if _, buf, err = readPart(in, buf, size); err != nil {
			return state, err
		}
		key, value = buf[:split], buf[split:]
		if err := put(key, value); err != nil {
			return state, err
		}
	}
}

// readPart appends size bytes to buf and answers them and the longer buf.
func readPart(in io.Reader, buf []byte, size uint64) (part, longer []byte, err error) {
	if size > snapshotEntryMax {
		return nil, buf, damagedSnapshot(fmt.Sprintf("an entry of %d bytes", size), nil)
	}
	from := len(buf)
	if need := from + int(size); need > cap(buf) {
		grown := make([]byte, from, need+need/4)
		copy(grown, buf)
		buf = grown
	}
	buf = buf[:from+int(size)]
	if _, err := io.ReadFull(in, buf[from:]); err != nil {
		return nil, buf, damagedSnapshot("it ends early", err)
	}
	return buf[from:], buf, nil
}

func readLine(in *bufio.Reader) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			return line, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) || len(line) > snapshotLineMax {
			return nil, damagedSnapshot("its state cannot be read", err)
		}
	}
}

func damagedSnapshot(what string, cause error) error {
	if cause == nil {
		return fmt.Errorf("%w: %s", errSnapshot, what)
	}
	return fmt.Errorf("%w: %s: %w", errSnapshot, what, cause)
}

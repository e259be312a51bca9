package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// unpackArray turns a JSON array of CloudEvents into lines, one event each with its bytes
// as they stand but for line breaks between tokens.
func (c *cutter) unpackArray() error {
	d := json.NewDecoder(c.in)
	if _, err := d.Token(); err != nil {
		return usage(fmt.Errorf("the file is no JSON array: %w", err))
	}
	c.contentType = "application/cloudevents+ndjson"
	pr, pw := io.Pipe()
	c.in = bufio.NewReaderSize(pr, 1<<20)
	go func() {
		pw.CloseWithError(copyElements(d, pw))
	}()
	return nil
}

// errCutOff: a file that was cut off must not pass for a whole one.
var errCutOff = errors.New("the JSON array has no end: the file was cut off")

func copyElements(d *json.Decoder, w io.Writer) error {
	for n := 1; d.More(); n++ {
		var element json.RawMessage
		err := d.Decode(&element)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errCutOff // io.EOF itself would read as the end of a whole file
		}
		if err != nil {
			return fmt.Errorf("element %d of the JSON array: %w", n, err)
		}
		line := append(bytes.ReplaceAll(element, []byte{'\n'}, []byte{' '}), '\n')
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return errCutOff
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON array; send one array a file, or one CloudEvent a line")
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"strings"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
)

// Exit codes of every verb (design: CLI contract).
const (
	exitOK          = 0
	exitFindings    = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitConflict    = 4
	exitRefused     = 5
)

// coded is an error with the exit code it leads to.
type coded struct {
	code int
	err  error
}

func (c coded) Error() string { return c.err.Error() }
func (c coded) Unwrap() error { return c.err }

func usage(err error) error    { return coded{exitUsage, err} }
func findings(err error) error { return coded{exitFindings, err} }
func refused(err error) error  { return coded{exitRefused, err} }

// errFindings ends a verb that has printed what it found.
var errFindings = errors.New("")

// exitCode answers the code an error leads to.
func exitCode(err error) int {
	var c coded
	var conflict *config.ConflictError
	var unfit *config.RefusedError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &c):
		return c.code
	case errors.As(err, &conflict):
		return exitConflict
	case errors.As(err, &unfit), errors.Is(err, natsio.ErrAPILevel):
		return exitRefused
	case errors.Is(err, natsio.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		return exitUnreachable
	case isUsage(err):
		return exitUsage
	}
	return exitFindings
}

// isUsage recognises cobra's complaints about flags and arguments, which have no type.
func isUsage(err error) bool {
	text := err.Error()
	for _, start := range []string{"unknown command", "unknown flag", "unknown shorthand flag", "invalid argument", "required flag", "accepts ", "requires at least", "flag needs an argument", "bad flag syntax"} {
		if strings.HasPrefix(text, start) {
			return true
		}
	}
	return false
}

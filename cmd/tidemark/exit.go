package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/effectops"
	"github.com/tidemark-mesh/tidemark/internal/natsio"
	"github.com/tidemark-mesh/tidemark/services/reconciler"
)

// Exit codes of every verb (design: CLI contract).
const (
	exitOK          = 0
	exitFindings    = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitConflict    = 4
	exitRefused     = 5
	exitUnknown     = 6 // effects of unknown outcome are among what was asked for
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
	case errors.As(err, &conflict), errors.Is(err, effectops.ErrOtherDigest):
		return exitConflict
	case errors.As(err, &unfit), errors.Is(err, natsio.ErrAPILevel),
		errors.Is(err, reconciler.ErrNotInThisVersion):
		return exitRefused
	case errors.Is(err, natsio.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		return exitUnreachable
	case isUsage(err):
		return exitUsage
	}
	return exitFindings
}

// spoken says an error to the person who typed args: what, why and what to do, without
// the words of libraries.
func spoken(root *cobra.Command, args []string, err error) string {
	text := err.Error()
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	if !isUsage(err) {
		return text
	}
	cmd, _, lost := root.Find(args)
	if lost != nil {
		cmd = root
	}
	help := "`" + cmd.CommandPath() + " --help` tells more"
	switch {
	case strings.HasPrefix(text, "unknown command") && !cmd.HasSubCommands():
		text = "`" + cmd.CommandPath() + "` takes no arguments"
	case strings.HasPrefix(text, "unknown command"):
		help = "`" + cmd.CommandPath() + " --help` lists the commands"
		cmd.SuggestionsMinimumDistance = 2
		for _, arg := range args {
			if near := cmd.SuggestionsFor(arg); len(near) > 0 && strings.Contains(text, strconv.Quote(arg)) {
				help = "did you mean " + strings.Join(near, " or ") + "? " + help
				break
			}
		}
	case strings.HasPrefix(text, "accepts "), strings.HasPrefix(text, "requires at least"):
		text = "wrong number of arguments; write: " + cmd.UseLine()
	case strings.HasPrefix(text, "required flag"):
		text += "; write: " + cmd.UseLine()
	case strings.HasPrefix(text, "invalid argument"):
		text, _, _ = strings.Cut(text, " flag: ") // what follows is how Go failed to read it
		text += " flag"
	}
	return text + "; " + help
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

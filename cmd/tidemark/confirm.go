package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// decision holds the flags of verbs with which an operator decides about many things.
type decision struct {
	reason string
	dryRun bool
	yes    bool
}

func (d *decision) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.reason, "reason", "", "why you decide so; it is kept with the decision")
	f.BoolVar(&d.dryRun, "dry-run", false, "show what would be done and change nothing")
	f.BoolVar(&d.yes, "yes", false, "do not ask")
}

// stated refuses a decision without its reason.
func (d *decision) stated() error {
	if d.reason == "" && !d.dryRun {
		return usage(fmt.Errorf("--reason is missing: say why, for whoever asks later"))
	}
	return nil
}

// confirm asks an operator on a terminal to type the count; elsewhere --yes is needed.
func (c *cli) confirm(d *decision, verb, things string, count int) error {
	c.note("%d %s to %s", count, things, verb)
	if d.yes {
		return nil
	}
	in, ok := c.in.(*os.File)
	if !ok || !isTerminal(in) {
		return usage(fmt.Errorf("nothing was done: no terminal to ask on; look with --dry-run, then confirm with --yes"))
	}
	fmt.Fprintf(c.err, "Type %d to %s them: ", count, verb)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != strconv.Itoa(count) {
		return refused(fmt.Errorf("nothing was done: not confirmed"))
	}
	return nil
}

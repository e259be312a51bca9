package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/cases"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// draft is what the flags of `create` fill in.
type draft struct {
	stream, job, source, key, time, format, window string
	partitions, sourcePartitions                   int
	alone                                          bool
}

func (c *cli) createCmd() *cobra.Command {
	d := draft{}
	kinds := draftKinds()
	cmd := &cobra.Command{
		Use:   "create KIND",
		Short: "Print an annotated document to begin with",
		Long: `Print a commented document of a kind that lints clean:

  BusinessStream     one named flow of events
  StreamTimePolicy   a computation on it; the stream's document comes first
  EffectPolicy       outside actions made of its results; the documents that it needs come first
  Adapter            the way to a provider of such actions
  TestCase           a test of both that needs no server

The first line tells editors with a YAML language server which schema to check and
complete with; write it beside the file with "tidemark schema KIND > FILE".`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: kinds,
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := d.document(args[0])
			if err != nil {
				return usage(err)
			}
			if err := d.check(text); err != nil {
				return usage(err)
			}
			_, err = c.out.Write([]byte(text))
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&d.stream, "stream", "orders", "name of the business stream")
	f.StringVar(&d.job, "job", "hourly-revenue", "name of the job")
	f.StringVar(&d.source, "source", "shop", "name of the source")
	f.StringVar(&d.key, "key", "/order/region", "JSON Pointer to the key in an event")
	f.StringVar(&d.time, "time", "/order/occurred_at", "JSON Pointer to the event time")
	f.StringVar(&d.format, "time-format", "rfc3339", "rfc3339, unix-s, unix-ms or unix-us")
	f.StringVar(&d.window, "window", "1h", "length of the tumbling windows")
	f.IntVar(&d.partitions, "partitions", 8, "key partitions, fixed for the life of the stream")
	f.IntVar(&d.sourcePartitions, "source-partitions", 1, "partitions of the source")
	f.BoolVar(&d.alone, "alone", false, "StreamTimePolicy and EffectPolicy: without the documents that they need, where these are applied")
	return cmd
}

func (d *draft) document(kind string) (string, error) {
	stream := d.fill(streamDraft)
	switch {
	case strings.EqualFold(kind, policy.KindBusinessStream):
		return stream, nil
	case strings.EqualFold(kind, policy.KindStreamTimePolicy) && d.alone:
		return d.fill(policyDraft), nil
	case strings.EqualFold(kind, policy.KindStreamTimePolicy):
		return stream + "---\n" + d.fill(policyDraft), nil
	case strings.EqualFold(kind, policy.KindAdapter):
		return adapterDraft, nil
	case strings.EqualFold(kind, policy.KindEffectPolicy) && d.alone:
		return d.fill(effectDraft), nil
	case strings.EqualFold(kind, policy.KindEffectPolicy):
		return strings.Join([]string{stream, d.fill(policyDraft), adapterDraft, d.fill(effectDraft)}, "---\n"), nil
	case strings.EqualFold(kind, cases.Kind):
		inline := stripComments(stream + "---\n" + d.fill(policyDraft))
		return strings.Replace(caseDraft, "  DOCUMENTS\n", indent(inline, "  "), 1), nil
	}
	kinds := draftKinds()
	last := len(kinds) - 1
	return "", fmt.Errorf("there is no kind %q; there are %s and %s", kind, strings.Join(kinds[:last], ", "), kinds[last])
}

func draftKinds() []string { return append(policy.Kinds(), cases.Kind) }

// check lints what the flags made.
func (d *draft) check(text string) error {
	var found []policy.Finding
	if cases.Holds([]byte(text)) {
		_, found = cases.Parse("document", []byte(text))
	} else {
		var docs []policy.Document
		docs, found = policy.Parse("document", []byte(text))
		if len(found) == 0 && !d.alone {
			found = config.Lint(docs, nil)
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("these flags make no good document: %s", found[0].Message)
	}
	return nil
}

func (d *draft) fill(text string) string {
	return strings.NewReplacer(
		"KEYPARTS", strconv.Itoa(d.partitions), "SOURCEPARTS", strconv.Itoa(d.sourcePartitions),
		"STREAM", yamlWord(d.stream), "JOB", yamlWord(d.job), "SOURCE", yamlWord(d.source), "KEY", yamlWord(d.key), "TIME", yamlWord(d.time), "FORMAT", yamlWord(d.format),
		"WINDOW", yamlWord(d.window),
	).Replace(text)
}

// yamlWord quotes what is no plain word.
func yamlWord(text string) string {
	for _, r := range text {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/_-.", r)) {
			return strconv.Quote(text)
		}
	}
	if text == "" {
		return `""`
	}
	return text
}

func indent(text, by string) string {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if strings.TrimSpace(line) != "" {
			lines[i] = by + line
		}
	}
	return strings.Join(lines, "")
}

// stripComments drops comment lines and what stands behind two spaces and a #.
func stripComments(text string) string {
	var out strings.Builder
	for _, line := range strings.SplitAfter(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		if at := strings.Index(line, "  #"); at >= 0 {
			line = strings.TrimRight(line[:at], " ") + "\n"
		}
		out.WriteString(line)
	}
	return out.String()
}

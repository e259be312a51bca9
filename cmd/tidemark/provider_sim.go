package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/internal/httpx"
	"github.com/tidemark-mesh/tidemark/internal/providersim"
)

// providerFlags say what kind of provider `provider-sim` is.
type providerFlags struct {
	listen, log     string
	mode, queryMode string
	seed            uint64
	settings        providersim.Settings
	retention       string
	secretFile      string
	tokenFile       string
	anonymous       bool
}

func (c *cli) providerSimCmd() *cobra.Command {
	var p providerFlags
	cmd := &cobra.Command{
		Use:   "provider-sim --log FILE",
		Short: "A provider of outside actions that misbehaves on purpose, to try effects on",
		Long: `An HTTP provider with idempotency keys, queries, a list and signed receipts. It writes a
line to its log for every action it carries out, on disk before it answers: whether an
effect ran twice is decided by that log (` + "`tidemark provider-sim log`" + `).

  POST   /v1/issue                    carry an action out; the body has a member effectKey
  GET    /v1/by-ref/{effectKey}       was it carried out? 404, one object, or a list
  GET    /v1/executions               all of them, in pages (effectKey=, after=, limit=)
  GET    /v1/keys                     how often each effectKey was carried out
  GET    /v1/control                  settings, modes, counts
  PUT    /v1/control/mode             {"mode":"accept=9,drop=1","seed":7,"on":"issue"}
  POST   /v1/control/rules            {"mode":"reject","effectKey":"…","nth":2,"every":0,"times":1,"on":"issue"}
  DELETE /v1/control/rules
  PUT    /v1/control/idempotency      {"retention":"1h","onBodyMismatch":"replay"}

Modes that carry the action out:
  accept          answer 200
  lose-answer     close the connection without an answer
  execute-NNN     answer with that status, such as execute-502
  redirect        answer 307 to the same place
  half-body       send half of the answer
  garbage         answer 200 with a body that is no JSON
  delay:D         answer after D
  hold:D          carry it out and answer after D, whether or not the caller waits
  pending:D       answer 202 at once, carry it out after D
  hide:D          no answer, and queries find it only after D
  forget:D        no answer, and the idempotency key is forgotten after D
Modes that do not:
  do-nothing      answer 200 as if it were done
  drop            close the connection
  answer-NNN      answer with that status, such as answer-503
  in-flight       answer 409
  throttle[:D]    answer 429, with Retry-After D
  reject          answer 422 with the code account_closed

--mode takes one mode, or a mix by weight: accept=80,lose-answer=15,hold:30s=5. What becomes
of the n-th request of a key depends on the seed and the key alone.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.providerSim(cmd.Context(), &p) },
	}
	p.add(cmd)
	cmd.AddCommand(c.providerSimLogCmd())
	return cmd
}

func (p *providerFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.listen, "listen", "127.0.0.1:9400", "address (port 0 = any free one)")
	f.StringVar(&p.log, "log", "", "file of executions; made where it is missing, gone on with where it is there")
	f.StringVar(&p.mode, "mode", "accept", "what becomes of requests: one mode, or a mix")
	f.StringVar(&p.queryMode, "query-mode", "accept", "what becomes of queries: accept, garbage, delay:D, drop, answer-NNN, throttle[:D], or a mix")
	f.Uint64Var(&p.seed, "seed", 1, "seed of the mixes")
	i := &p.settings.Idempotency
	f.BoolVar(&i.Off, "no-idempotency", false, "carry out every request, whatever its key")
	f.StringVar(&i.Header, "key-header", "Idempotency-Key", "header with the idempotency key")
	f.StringVar(&p.retention, "retention", "24h", "how long a key is known")
	f.StringVar(&i.Basis, "basis", "firstSeen", "from when the retention counts: firstSeen, lastSeen or completion")
	f.StringVar(&i.OnBodyMismatch, "on-body-mismatch", "error", "a known key with another body: error, replay (the first answer), ignore (answer, do nothing) or execute")
	f.StringVar(&p.settings.Fields.Amount, "amount", "/amount", "JSON Pointer to the amount, in requests and answers")
	f.StringVar(&p.settings.Fields.Subject, "subject", "/subject", "JSON Pointer to the subject, in requests and answers")
	f.StringVar(&p.settings.Receipts.URL, "receipts-to", "", "URL to post signed receipts of executions to (Standard Webhooks)")
	f.StringVar(&p.secretFile, "receipts-secret-file", "", "file with the whsec_ secret that signs them")
	f.StringVar(&p.tokenFile, "http-token-file", "", "file with the bearer token that /v1/ asks for")
	f.BoolVar(&p.anonymous, "http-anonymous", false, "listen beyond loopback without a token (closed networks only)")
}

// options reads the flags.
func (p *providerFlags) options() (providersim.Options, error) {
	o := providersim.Options{Log: p.log, Seed: p.seed, Settings: p.settings}
	if p.log == "" {
		return o, usage(errors.New("--log is missing: name the file that says what was carried out"))
	}
	var err error
	if o.Mix, err = providersim.ParseMix(p.mode); err != nil {
		return o, usage(fmt.Errorf("--mode: %w", err))
	}
	if o.QueryMix, err = providersim.ParseQueryMix(p.queryMode); err != nil {
		return o, usage(fmt.Errorf("--query-mode: %w", err))
	}
	if err := o.Settings.Idempotency.Retention.UnmarshalText([]byte(p.retention)); err != nil {
		return o, usage(fmt.Errorf("--retention: %w", err))
	}
	if (p.secretFile == "") != (p.settings.Receipts.URL == "") {
		return o, usage(errors.New("--receipts-to and --receipts-secret-file stand together"))
	}
	if o.Settings.Receipts.Secret, err = readSecret(p.secretFile); err != nil {
		return o, err
	}
	token, err := readSecret(p.tokenFile)
	if err != nil {
		return o, err
	}
	o.HTTP = httpx.Options{Addr: p.listen, Token: token, Anonymous: p.anonymous}
	return o, nil
}

// providerSim serves until ctx ends.
func (c *cli) providerSim(ctx context.Context, p *providerFlags) error {
	o, err := p.options()
	if err != nil {
		return err
	}
	sim, err := providersim.Start(o)
	if err != nil {
		return refused(err)
	}
	fmt.Fprintf(c.out, "http  %s\n", sim.URL())
	log := c.logger()
	log.Info().Str("service", "provider-sim").Str("http", sim.URL()).Int("executions", len(sim.All())).Msg("ready")
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	if err := sim.Close(stopping); err != nil {
		return refused(err)
	}
	return nil
}

func (c *cli) providerSimLogCmd() *cobra.Command {
	var keys []string
	cmd := &cobra.Command{
		Use:   "log FILE",
		Short: "How often each effectKey was carried out; exit 1 if one was more than once",
		Long: `Read a simulator's log, which may be in use, and count executions by effectKey. Exit 1 if
a key was carried out more than once. HELD are requests that were taken and not carried out
yet; BODIES is how many different requests were carried out under the key.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			records, err := providersim.ReadLog(args[0])
			if errors.Is(err, os.ErrNotExist) {
				return usage(fmt.Errorf("no file %s; name what --log named", args[0]))
			}
			if err != nil {
				return refused(err)
			}
			return c.printCounts(providersim.Judge(records), keys)
		},
	}
	cmd.Flags().StringSliceVar(&keys, "key", nil, "only this effectKey (or one that begins so); several are possible")
	return cmd
}

func (c *cli) printCounts(counts []providersim.Count, only []string) error {
	var rows []row
	twice := 0
	for _, n := range counts {
		if !keyAsked(n.EffectKey, only) {
			continue
		}
		if n.Executions > 1 {
			twice++
		}
		rows = append(rows, row{[]string{n.EffectKey, strconv.Itoa(n.Executions), strconv.Itoa(n.Bodies), strconv.Itoa(n.Held)}, n})
	}
	if err := c.list([]string{"EFFECTKEY", "EXECUTIONS", "BODIES", "HELD"}, rows); err != nil {
		return err
	}
	if twice > 0 {
		return findings(fmt.Errorf("%d of %d effectKeys were carried out more than once", twice, len(rows)))
	}
	c.note("%d effectKeys, none carried out more than once", len(rows))
	return nil
}

func keyAsked(key string, only []string) bool {
	for _, start := range only {
		if strings.HasPrefix(key, start) {
			return true
		}
	}
	return len(only) == 0
}

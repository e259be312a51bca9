package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-mesh/tidemark/consumers/webhook"
	"github.com/tidemark-mesh/tidemark/internal/config"
	"github.com/tidemark-mesh/tidemark/internal/httpx"
)

// webhookDoor says how the process is reached.
type webhookDoor struct{ data, url, tokenFile string }

func (d *webhookDoor) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&d.data, "data", webhookData, "data directory of the process")
	f.StringVar(&d.url, "url", "", "address of the process, such as http://127.0.0.1:8090 (default: from --data)")
	f.StringVar(&d.tokenFile, "http-token-file", "", "file with the bearer token of the process")
}

// webhookAsk asks the process and reads its answer.
func (c *cli) webhookAsk(ctx context.Context, d *webhookDoor, method, path string, body, answer any) error {
	base := d.url
	var err error
	if base == "" {
		if base, err = readWebhookFile(d.data); err != nil {
			return err
		}
	}
	token, err := readSecret(d.tokenFile)
	if err != nil {
		return err
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, bytes.NewReader(text))
	if err != nil {
		return usage(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return coded{exitUnreachable, fmt.Errorf("no webhook process answers at %s; is `tidemark webhook run` running?", base)}
	}
	defer reply.Body.Close()
	if text, err = io.ReadAll(reply.Body); err != nil {
		return coded{exitUnreachable, fmt.Errorf("the answer of %s broke off: %w", base, err)}
	}
	var failure struct {
		Error *httpx.Error `json:"error"`
	}
	switch err := json.Unmarshal(text, &failure); {
	case err != nil:
		return findings(fmt.Errorf("%s answers %s and no JSON; is it a webhook process?", base, reply.Status))
	case failure.Error != nil && reply.StatusCode == http.StatusUnauthorized:
		return refused(fmt.Errorf("%w (--http-token-file)", failure.Error))
	case failure.Error != nil && reply.StatusCode == http.StatusBadRequest:
		return usage(failure.Error)
	case failure.Error != nil:
		return findings(failure.Error)
	}
	return json.Unmarshal(text, answer)
}

func (c *cli) webhookStatusCmd() *cobra.Command {
	d := &webhookDoor{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say where the endpoint stands; exit 1 if something needs attention",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st := &webhook.Status{}
			if err := c.webhookAsk(cmd.Context(), d, http.MethodGet, "/v1/webhook", nil, st); err != nil {
				return err
			}
			if err := c.object(st); err != nil {
				return err
			}
			if len(st.Alerts) > 0 {
				return findings(errFindings)
			}
			return nil
		},
	}
	d.flags(cmd)
	return cmd
}

func (c *cli) webhookListCmd() *cobra.Command {
	d := &webhookDoor{}
	var state, projection string
	limit := 1000
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List deliveries in the order of the feed",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{"state": {state}, "projection": {projection}, "limit": {strconv.Itoa(limit)}}
			var answer struct {
				Deliveries []*webhook.Delivery `json:"deliveries"`
			}
			if err := c.webhookAsk(cmd.Context(), d, http.MethodGet, "/v1/webhook/deliveries?"+q.Encode(), nil, &answer); err != nil {
				return err
			}
			rows := make([]row, len(answer.Deliveries))
			for i, d := range answer.Deliveries {
				rows[i] = row{object: d, cells: []string{
					d.ID, d.Key, string(d.State), strconv.Itoa(d.Attempts), moment(d.QueuedAt), moment(d.DeliveredAt), d.Problem,
				}}
			}
			if len(rows) == limit {
				c.note("these are the first %d; --limit shows more, --state and --projection choose", limit)
			}
			return c.list([]string{"WEBHOOK-ID", "KEY", "STATE", "ATTEMPTS", "QUEUED", "DELIVERED", "PROBLEM"}, rows)
		},
	}
	f := cmd.Flags()
	f.StringVar(&state, "state", "", "only those in this state, e.g. FAILED")
	f.StringVar(&projection, "projection", "", "only those of this projection id")
	f.IntVar(&limit, "limit", limit, "how many at most")
	d.flags(cmd)
	return cmd
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func (c *cli) webhookRedeliverCmd() *cobra.Command {
	d, decided := &webhookDoor{}, &decision{}
	o := &webhook.Order{}
	cmd := &cobra.Command{
		Use:   "redeliver (--id ID… | --failed | --refused | --overdue) --reason TEXT",
		Short: "Send deliveries again: same webhook-id, same bytes, the whole schedule",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.webhookAct(cmd.Context(), d, decided, o, "redeliver", "queued")
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.IDs, "id", nil, "deliveries with these webhook-ids")
	f.BoolVar(&o.Failed, "failed", false, "deliveries that used up the schedule")
	f.BoolVar(&o.Refused, "refused", false, "deliveries that the receiver refused")
	f.BoolVar(&o.Overdue, "overdue", false, "deliveries without a receipt for longer than agreed")
	decided.flags(cmd)
	d.flags(cmd)
	return cmd
}

func (c *cli) webhookSkipCmd() *cobra.Command {
	d, decided := &webhookDoor{}, &decision{}
	o := &webhook.Order{}
	cmd := &cobra.Command{
		Use:   "skip (--id ID… | --failed) --reason TEXT",
		Short: "Give deliveries up, so that what waits behind them can go",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.webhookAct(cmd.Context(), d, decided, o, "skip", "skipped")
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.IDs, "id", nil, "deliveries with these webhook-ids")
	f.BoolVar(&o.Failed, "failed", false, "deliveries that used up the schedule")
	decided.flags(cmd)
	d.flags(cmd)
	return cmd
}

// webhookAct chooses deliveries, counts them, asks, and tells each result.
func (c *cli) webhookAct(ctx context.Context, d *webhookDoor, decided *decision, o *webhook.Order, verb, done string) error {
	if len(o.IDs) == 0 && !o.Failed && !o.Refused && !o.Overdue {
		return usage(fmt.Errorf("say which deliveries; `tidemark webhook ls` lists them"))
	}
	if err := decided.stated(); err != nil {
		return err
	}
	o.By, o.Reason, o.DryRun = config.Operator(), decided.reason, true
	var answer struct {
		Items []webhook.Item `json:"items"`
	}
	if err := c.webhookAsk(ctx, d, http.MethodPost, "/v1/webhook/"+verb, o, &answer); err != nil {
		return err
	}
	if decided.dryRun || len(answer.Items) == 0 {
		c.note("%d deliveries to %s; nothing was done", len(answer.Items), verb)
		return c.webhookItems(answer.Items)
	}
	if err := c.confirm(decided, verb, "deliveries", len(answer.Items)); err != nil {
		return err
	}
	o.DryRun = false
	if err := c.webhookAsk(ctx, d, http.MethodPost, "/v1/webhook/"+verb, o, &answer); err != nil {
		return err
	}
	if err := c.webhookItems(answer.Items); err != nil {
		return err
	}
	for _, item := range answer.Items {
		if item.Result != done {
			return findings(errFindings)
		}
	}
	return nil
}

func (c *cli) webhookItems(items []webhook.Item) error {
	rows := make([]row, len(items))
	for i := range items {
		rows[i] = row{cells: []string{items[i].WebhookID, items[i].Result, string(items[i].State), items[i].Problem}, object: &items[i]}
	}
	if len(rows) == 0 && c.output == "table" {
		return nil
	}
	return c.list([]string{"WEBHOOK-ID", "RESULT", "STATE", "PROBLEM"}, rows)
}

func (c *cli) webhookEnableCmd() *cobra.Command {
	d := &webhookDoor{}
	var reason string
	cmd := &cobra.Command{
		Use:   "enable --reason TEXT",
		Short: "Send again to an endpoint that was disabled, or that asked for quiet",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := (&decision{reason: reason}).stated(); err != nil {
				return err
			}
			st := &webhook.Status{}
			order := webhook.Order{By: config.Operator(), Reason: reason}
			if err := c.webhookAsk(cmd.Context(), d, http.MethodPost, "/v1/webhook/enable", order, st); err != nil {
				return err
			}
			return c.object(st)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why you decide so; it is kept with the decision")
	d.flags(cmd)
	return cmd
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/internal/httpx"
)

// ask sends a JSON request to a service and reads its JSON answer. who names the service
// in errors.
func (c *cli) ask(ctx context.Context, nc *nats.Conn, subject, who string, request, answer any) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	var reply *nats.Msg
	if who != "ingest" { // questions only
		reply, err = askAny(ctx, nc, subject, body)
	} else {
		reply, err = nc.RequestWithContext(ctx, subject, body)
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return coded{exitUnreachable, fmt.Errorf("no %s answers on this server; is `tidemark up` or `tidemark %s` running?", who, who)}
	case err != nil:
		return coded{exitUnreachable, fmt.Errorf("%s did not answer: %w", who, err)}
	}
	var failure struct {
		Error *httpx.Error `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &failure); err != nil {
		return fmt.Errorf("%s answered something that is no JSON: %w", who, err)
	}
	if failure.Error != nil {
		if failure.Error.Code == "bad-request" || failure.Error.Code == "not-found" {
			return usage(*failure.Error)
		}
		return findings(*failure.Error)
	}
	return json.Unmarshal(reply.Data, answer)
}

// askAgain is how long one of several processes has to answer before another is asked.
const askAgain = time.Second

// askAny asks processes that share the work until one of them answers: the server hands a
// request to any, and that one may have died or stand still. For questions only.
func askAny(ctx context.Context, nc *nats.Conn, subject string, body []byte) (*nats.Msg, error) {
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe() // answers that come later are of no use
	for {
		if err := nc.PublishRequest(subject, inbox, body); err != nil {
			return nil, err
		}
		try, cancel := context.WithTimeout(ctx, askAgain)
		m, err := sub.NextMsgWithContext(try)
		cancel()
		switch {
		case err == nil, ctx.Err() != nil, !errors.Is(err, context.DeadlineExceeded):
			return m, err
		}
	}
}

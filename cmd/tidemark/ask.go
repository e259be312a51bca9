package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

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
	reply, err := nc.RequestWithContext(ctx, subject, body)
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

package adapters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/envelope"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// natsAdapter asks a provider that listens on a NATS subject. The provider's word is its
// reply; that a stream stored the request is nobody's execution.
type natsAdapter struct {
	doc  *policy.Adapter
	deps Deps
	conn *nats.Conn
}

// scopePrefix stands before the subject in a scope's url.
const scopePrefix = "nats:"

func newNATS(doc *policy.Adapter, deps Deps) (*natsAdapter, error) {
	if deps.Conn == nil {
		return nil, errors.New("type nats needs a NATS connection, and there is none")
	}
	if deps.Conn.Opts.ReconnectBufSize >= 0 {
		return nil, errors.New("the NATS connection keeps requests while it is cut off and would send them at any time later; make it with ReconnectBufSize(-1)")
	}
	if _, err := fixedHeaders(doc, deps); err != nil {
		return nil, err
	}
	return &natsAdapter{doc: doc, deps: deps, conn: deps.Conn}, nil
}

// Close implements adapter.Adapter. The connection belongs to whoever made it.
func (n *natsAdapter) Close() error { return nil }

// Send implements adapter.Adapter. MaySend is asked when the server has just read all that
// was written, so that what it allows goes to the socket next. Beside MaySend's
// no, and a connection that is down before anything was handed to it, only "no responders"
// counts as not sent.
func (n *natsAdapter) Send(ctx context.Context, call adapter.Call) adapter.Answer {
	subject, ok := strings.CutPrefix(call.Scope.URL, scopePrefix)
	if !ok || subject == "" {
		return unsent(&call, "the url of the scope is no NATS subject")
	}
	if len(call.Payload) == 0 {
		return unsent(&call, "the payload is empty")
	}
	msg, err := n.message(subject, call.Payload, call.TraceParent)
	if err != nil {
		return unsent(&call, err.Error())
	}
	if n.doc.Idempotency.Header != "" {
		msg.Header.Set(n.doc.Idempotency.Header, call.Key.String())
	}
	inbox, err := n.listen(msg)
	if err != nil {
		return unsent(&call, "no inbox for the reply could be made")
	}
	defer inbox.close()
	if why := n.clear(ctx); why != "" {
		return unsent(&call, why)
	}
	if call.MaySend == nil || !call.MaySend() {
		return unsent(&call, errNotAllowed.Error())
	}
	if err := n.conn.PublishMsg(msg); err != nil {
		return ambiguous(&call, "the NATS connection did not take the request")
	}
	return n.await(ctx, &call, inbox)
}

// message builds a request.
func (n *natsAdapter) message(subject string, data []byte, traceParent string) (*nats.Msg, error) {
	headers, err := fixedHeaders(n.doc, n.deps)
	if err != nil {
		return nil, err
	}
	msg := nats.NewMsg(subject)
	msg.Data = data
	for _, h := range headers {
		msg.Header.Set(h.name, h.value)
	}
	if isTraceParent(traceParent) {
		msg.Header.Set("traceparent", traceParent)
	}
	return msg, nil
}

// clear waits until the server has read all that the connection had to write; why is why
// it does not. A server that reads no more would leave a request in the connection's
// buffer, to go out at any time after MaySend allowed it.
func (n *natsAdapter) clear(ctx context.Context) (why string) {
	if !n.conn.IsConnected() {
		return "there is no connection to a NATS server"
	}
	ctx, cancel := context.WithTimeout(ctx, duration(n.doc.SendWithin))
	defer cancel()
	if n.conn.FlushWithContext(ctx) != nil {
		return "the NATS server does not answer"
	}
	return ""
}

// await waits for the provider's reply.
func (n *natsAdapter) await(ctx context.Context, call *adapter.Call, in *inbox) adapter.Answer {
	ctx, cancel := context.WithTimeout(ctx, duration(n.doc.Timeout))
	defer cancel()
	stored := ""
	for {
		msg, err := in.sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return unsent(call, "nobody listens on the subject")
		case err != nil:
			return ambiguous(call, "no reply within the timeout"+stored)
		case isPubAck(msg):
			stored = "; a stream stored the request, which executes nothing"
			continue
		case len(msg.Data) > maxAnswer:
			return ambiguous(call, fmt.Sprintf("a reply of more than %d bytes", maxAnswer))
		}
		return classify(n.doc, call, replyOf(msg))
	}
}

// Query implements adapter.Adapter.
func (n *natsAdapter) Query(ctx context.Context, q adapter.Question) (adapter.Finding, error) {
	if n.doc.Query.Subject == "" {
		return adapter.Finding{}, adapter.ErrNoQuery
	}
	body, err := json.Marshal(map[string]string{"effectKey": q.Key.String()})
	if err != nil {
		return adapter.Finding{}, err
	}
	msg, err := n.message(strings.ReplaceAll(n.doc.Query.Subject, policy.KeyPlaceholder, q.Key.String()), body, "")
	if err != nil {
		return adapter.Finding{}, err
	}
	in, err := n.listen(msg)
	if err != nil {
		return adapter.Finding{}, errors.New("no inbox for the reply could be made")
	}
	defer in.close()
	ctx, cancel := context.WithTimeout(ctx, duration(n.doc.Timeout))
	defer cancel()
	if err := n.conn.PublishMsg(msg); err != nil {
		return adapter.Finding{}, errors.New("the NATS connection did not take the query")
	}
	for {
		reply, err := in.sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return adapter.Finding{}, errors.New("nobody listens on the query's subject")
		case err != nil:
			return adapter.Finding{}, errors.New("the query got no reply within the timeout")
		case isPubAck(reply):
			continue
		case len(reply.Data) > maxAnswer:
			return adapter.Finding{}, fmt.Errorf("%w: a reply of more than %d bytes", adapter.ErrUnclear, maxAnswer)
		}
		return find(n.doc, q.Key, replyOf(reply))
	}
}

// inbox is where replies to one request arrive.
type inbox struct{ sub *nats.Subscription }

// listen makes an inbox and has msg ask for replies to it. The client's own request call
// takes the first reply that comes, which may be a stream's acknowledgement.
func (n *natsAdapter) listen(msg *nats.Msg) (*inbox, error) {
	msg.Reply = n.conn.NewInbox()
	sub, err := n.conn.SubscribeSync(msg.Reply)
	if err != nil {
		return nil, err
	}
	return &inbox{sub}, nil
}

func (in *inbox) close() { _ = in.sub.Unsubscribe() }

// isPubAck tells whether a reply is what a JetStream stream answers when it stored a
// message, or could not.
func isPubAck(msg *nats.Msg) bool {
	d, ok := parseBody(msg.Data)
	if !ok || d.Kind(root) != envelope.Object {
		return false
	}
	if kind, ok := textAt(d, root, "/type"); ok && strings.HasPrefix(kind, "io.nats.jetstream.") {
		return true
	}
	_, stream := textAt(d, root, "/stream")
	seq, numbered := at(d, root, "/seq")
	return stream && numbered && d.Kind(seq) == envelope.Number || ackError(d)
}

// ackError tells whether a body is a stream's refusal to store: an error with the numeric
// code of the JetStream API, and nothing of a provider.
func ackError(d *envelope.Document) bool {
	code, ok := at(d, root, "/error/err_code")
	return ok && d.Kind(code) == envelope.Number
}

// replyOf answers a reply as it is classified: replies carry no media type, and are JSON
// or say nothing.
func replyOf(msg *nats.Msg) *reply {
	return &reply{mediaType: "application/json", body: msg.Data}
}

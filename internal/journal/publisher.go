package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// publisher sends messages over core NATS in exactly the order asked for and hands their
// answers on under a token. It never sends anything again by itself, as the JetStream
// publish calls would: order and repetition are its owner's.
type publisher struct {
	nc      *nats.Conn
	inbox   string
	sub     *nats.Subscription
	replies chan *nats.Msg
	status  chan nats.Status
	token   uint64
	// send and heard are seams for tests: send may drop a message, heard an answer.
	send  func(*nats.Msg) error
	heard func(*nats.Msg) bool
}

func newPublisher(nc *nats.Conn) (*publisher, error) {
	p := &publisher{
		nc:      nc,
		inbox:   nc.NewInbox(),
		replies: make(chan *nats.Msg, 1024),
		status:  nc.StatusChanged(nats.RECONNECTING, nats.CLOSED),
		send:    nc.PublishMsg,
		heard:   func(*nats.Msg) bool { return true },
	}
	sub, err := nc.ChanSubscribe(p.inbox+".*", p.replies)
	if err != nil {
		nc.RemoveStatusListener(p.status)
		return nil, fmt.Errorf("subscribe to answers: %w", err)
	}
	p.sub = sub
	return p, nil
}

// publish sends msg and answers the token under which its answer will come.
func (p *publisher) publish(msg *nats.Msg) (uint64, error) {
	p.token++
	msg.Reply = p.inbox + "." + strconv.FormatUint(p.token, 10)
	return p.token, p.send(msg)
}

// read decodes an answer; ok is false for one that is nobody's.
func (p *publisher) read(msg *nats.Msg) (token uint64, a answer, ok bool) {
	if !p.heard(msg) {
		return 0, answer{}, false
	}
	text, found := strings.CutPrefix(msg.Subject, p.inbox+".")
	token, err := strconv.ParseUint(text, 10, 64)
	if !found || err != nil {
		return 0, answer{}, false
	}
	return token, readAnswer(msg), true
}

func (p *publisher) close() {
	p.nc.RemoveStatusListener(p.status)
	// A closed connection has no subscription left to end.
	_ = p.sub.Unsubscribe()
}

var errNoLeader = errors.New("no server takes messages for the stream")

// readAnswer decodes a publish acknowledgement. An empty body is a batch message staged.
func readAnswer(msg *nats.Msg) answer {
	if msg.Header.Get("Status") == "503" {
		return answer{verdict: unsure, cause: errNoLeader}
	}
	if len(msg.Data) == 0 {
		return answer{verdict: accepted}
	}
	var ack struct {
		Seq   uint64 `json:"seq"`
		Count int    `json:"count"`
		Error *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &ack); err != nil {
		return answer{verdict: unsure, cause: fmt.Errorf("unreadable answer: %w", err)}
	}
	if ack.Error == nil {
		return answer{verdict: accepted, seq: ack.Seq, count: ack.Count}
	}
	v, last := classify(ack.Error.Code, ack.Error.Description)
	return answer{verdict: v, last: last, cause: fmt.Errorf("%s (code %d)", ack.Error.Description, ack.Error.Code)}
}

package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// feed is one server-side consumer of a Reader: ordered because nothing is acknowledged
// or sent again and its own numbering shows every loss. The ordered consumer of the client
// library hides its restarts, and with them the moments at which a stream's identity must
// be looked at.
type feed struct {
	iter   jetstream.MessagesContext
	nc     *nats.Conn
	stream jetstream.Stream
	name   string
	status chan nats.Status
	cut    context.CancelFunc
	live   context.Context
	count  uint64 // messages had: the consumer's numbering
}

const (
	heartbeat = 5 * time.Second
	idleAfter = 30 * time.Second // the server drops a consumer that nobody pulls from
)

func openFeed(ctx context.Context, nc *nats.Conn, stream jetstream.Stream, next uint64, filters []string) (*feed, error) {
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	config := jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       next,
		AckPolicy:         jetstream.AckNonePolicy,
		Replicas:          1,
		MemoryStorage:     true,
		InactiveThreshold: idleAfter,
	}
	switch len(filters) {
	case 0:
	case 1:
		// A single filter stands in the request's subject, where permissions can see it.
		config.FilterSubject = filters[0]
	default:
		config.FilterSubjects = filters
	}
	consumer, err := stream.CreateConsumer(ask, config)
	if err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	iter, err := consumer.Messages(
		jetstream.PullMaxMessagesWithBytesLimit(prefetchMessages, prefetchBytes),
		jetstream.PullHeartbeat(heartbeat),
		jetstream.WithMessagesErrOnMissingHeartbeat(true),
	)
	if err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	info := consumer.CachedInfo()
	f := &feed{iter: iter, nc: nc, stream: stream, name: info.Name}
	f.status = nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	f.live, f.cut = context.WithCancel(ctx)
	go f.watch(f.live)
	return f, nil
}

// watch ends the feed when the connection is cut: the stream may be another one afterwards.
func (f *feed) watch(live context.Context) {
	select {
	case <-f.status:
		f.cut()
	case <-live.Done():
	}
	f.nc.RemoveStatusListener(f.status)
}

var errLostMessage = errors.New("a message was lost on the way")

func (f *feed) next(ctx context.Context) (Msg, error) {
	msg, err := f.iter.Next(jetstream.NextContext(f.live))
	if err != nil {
		return Msg{}, err
	}
	meta, err := msg.Metadata()
	if err != nil {
		return Msg{}, fmt.Errorf("metadata: %w", err)
	}
	f.count++
	if meta.Sequence.Consumer != f.count {
		return Msg{}, errLostMessage
	}
	return Msg{
		Seq:     meta.Sequence.Stream,
		Subject: msg.Subject(),
		Header:  msg.Headers(),
		Data:    msg.Data(),
		Time:    meta.Timestamp,
		Pending: meta.NumPending,
	}, nil
}

// close ends the feed; the server is told so that it need not wait for idleness.
func (f *feed) close() {
	f.cut()
	f.iter.Stop()
	if !f.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	// Not found is as good as deleted, and idleness ends it at the latest.
	_ = f.stream.DeleteConsumer(ctx, f.name)
}

package adapters

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Why a connection does not write.
var (
	errNotAllowed = errors.New("the time to send had passed before the first byte")
	errNoPassage  = errors.New("the connection carries no attempt")
	errSecondSend = errors.New("the attempt has already sent bytes over another connection")
	errSealed     = errors.New("the attempt was given up before its first byte")

	errUnconnected = errors.New("no connection within sendWithin")
	errUnanswered  = errors.New("no whole answer within the timeout")
)

// passage is the right of one attempt to send bytes. One connection gets it, once: a
// transport that sends the request again over another one is refused there, whatever
// rules it goes by.
type passage struct {
	maySend func() bool
	first   chan struct{} // closed before the first byte

	mu     sync.Mutex
	holder *gatedConn // that wrote, or is about to
	closed error      // why no connection may begin any more
}

func newPassage(maySend func() bool) *passage {
	return &passage{maySend: maySend, first: make(chan struct{})}
}

// enter answers nil if c may write. It asks maySend when c is about to write the first
// byte, and never again.
func (p *passage) enter(c *gatedConn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.holder == c:
		return nil
	case p.holder != nil:
		return errSecondSend
	case p.closed != nil:
		return p.closed
	case p.maySend == nil || !p.maySend():
		p.closed = errNotAllowed
		return p.closed
	}
	p.holder = c
	close(p.first)
	return nil
}

// seal ends the passage and answers whether it is sure that no byte went out. From then
// on none can.
func (p *passage) seal() (unsent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed == nil {
		p.closed = errSealed
	}
	return p.holder == nil
}

// refused tells whether maySend said no.
func (p *passage) refused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed == errNotAllowed
}

// watch cancels an attempt that has no first byte within sendWithin, or no whole answer
// within timeout of it. It ends with ctx.
func (p *passage) watch(ctx context.Context, cancel context.CancelCauseFunc, sendWithin, timeout time.Duration) {
	before, stopBefore := context.WithTimeout(ctx, sendWithin)
	defer stopBefore()
	select {
	case <-p.first:
	case <-before.Done():
		if p.seal() {
			cancel(errUnconnected)
			return
		}
	}
	after, stopAfter := context.WithTimeout(ctx, timeout)
	defer stopAfter()
	<-after.Done()
	cancel(errUnanswered)
}

// gatedConn is a connection, TLS included, that writes for one attempt after the other.
// Bytes that belong to no attempt are not written.
type gatedConn struct {
	net.Conn
	pass atomic.Pointer[passage]
}

// Write implements net.Conn.
func (c *gatedConn) Write(b []byte) (int, error) {
	p := c.pass.Load()
	if p == nil {
		return 0, errNoPassage
	}
	if err := p.enter(c); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

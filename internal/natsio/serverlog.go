package natsio

import (
	"fmt"
	"sync/atomic"

	"github.com/rs/zerolog"
)

// logBridge hands the server's warnings and errors on, and keeps its first fatal message:
// the server logs it and goes on half dead, so Embed has to look.
type logBridge struct {
	log   zerolog.Logger
	first atomic.Pointer[string]
}

func (b *logBridge) fatal() string {
	if text := b.first.Load(); text != nil {
		return *text
	}
	return ""
}

func (b *logBridge) Noticef(string, ...any) {}
func (b *logBridge) Debugf(string, ...any)  {}
func (b *logBridge) Tracef(string, ...any)  {}

func (b *logBridge) Warnf(format string, v ...any) {
	b.log.Warn().Str("from", "nats-server").Msgf(format, v...)
}

func (b *logBridge) Errorf(format string, v ...any) {
	b.log.Error().Str("from", "nats-server").Msgf(format, v...)
}

func (b *logBridge) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	b.first.CompareAndSwap(nil, &text)
	b.log.Error().Str("from", "nats-server").Msg(text)
}

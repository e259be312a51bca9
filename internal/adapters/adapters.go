// Package adapters reaches providers as the Adapter documents say: over HTTP, over NATS,
// or into the log. It also verifies their signed receipts.
package adapters

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/tidemark-mesh/tidemark/internal/clock"
	"github.com/tidemark-mesh/tidemark/pkg/effect/adapter"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Deps are what adapters are built on. The zero value serves HTTP adapters.
type Deps struct {
	// Conn carries NATS adapters. It must have been made with ReconnectBufSize(-1), and
	// should carry nothing else: what waits in its buffer delays the first byte.
	Conn *nats.Conn

	Log   zerolog.Logger // log adapters write to it
	Clock clock.Clock    // nil = the machine's

	// Allow are networks that every adapter may reach although they are private, beside
	// those that its document names.
	Allow []netip.Prefix

	Roots   *x509.CertPool                    // who may sign certificates of providers; nil = the machine's
	Secrets func(file string) ([]byte, error) // reads a secret; nil = from the file system
}

func (d Deps) clock() clock.Clock {
	if d.Clock == nil {
		return clock.System()
	}
	return d.Clock
}

// New answers the adapter that doc describes; doc is taken as linted, and must stay
// unchanged. Errors say what of the document or the surroundings has to change.
func New(doc *policy.Adapter, deps Deps) (adapter.Adapter, error) {
	var made adapter.Adapter
	var err error
	switch doc.Type {
	case policy.AdapterHTTP:
		made, err = newHTTP(doc, deps)
	case policy.AdapterNATS:
		made, err = newNATS(doc, deps)
	case policy.AdapterLog:
		made = &logAdapter{log: deps.Log.With().Str("adapter", doc.Ref()).Logger()}
	default:
		err = fmt.Errorf("type %q is none of http, nats and log", doc.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("adapter %s: %w", doc.Ref(), err)
	}
	return made, nil
}

func duration(d policy.Duration) time.Duration { return time.Duration(d) * time.Microsecond }

// maxSecret bounds a secret's file.
const maxSecret = 16 << 10

// secret reads a file that holds a secret. Its errors name the file and nothing of what
// is in it.
func (d Deps) secret(file string) ([]byte, error) {
	read := d.Secrets
	if read == nil {
		read = os.ReadFile
	}
	data, err := read(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("secret file %s is not there; write the secret into it", file)
	case err != nil:
		return nil, fmt.Errorf("secret file %s cannot be read; check who may read it", file)
	case len(data) == 0 || len(data) > maxSecret:
		return nil, fmt.Errorf("secret file %s has %d bytes; it must have 1 to %d", file, len(data), maxSecret)
	}
	return data, nil
}

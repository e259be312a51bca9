// Package reconciler will hold the service that gives every late event a disposition.
// This version has no reconciler: starting it is refused, so that nobody mistakes a
// running process for a working one.
package reconciler

import (
	"context"
	"errors"
	"net/http"

	"github.com/rs/zerolog"
)

// ErrNotInThisVersion tells that the service does not exist yet.
var ErrNotInThisVersion = errors.New("this version of Tidemark has no reconciler; run ingest, windower and projector")

// Config of a Service.
type Config struct{ Log zerolog.Logger }

// Service is not there yet; New always answers ErrNotInThisVersion.
type Service struct{}

// New answers ErrNotInThisVersion.
func New(Config) (*Service, error) { return nil, ErrNotInThisVersion }

// Run answers ErrNotInThisVersion.
func (*Service) Run(context.Context) error { return ErrNotInThisVersion }

// Routes adds nothing.
func (*Service) Routes(*http.ServeMux) {}

// Problems answers that the service is not there.
func (*Service) Problems() []string { return []string{ErrNotInThisVersion.Error()} }

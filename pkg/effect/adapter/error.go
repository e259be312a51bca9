package adapter

import "errors"

// Errors of Query.
var (
	ErrNoQuery = errors.New("the adapter declares no query")

	// ErrUnclear says that the answer to a query could not be read as "found" or "not
	// found": it is no absence.
	ErrUnclear = errors.New("the provider's answer says neither found nor not found")
)

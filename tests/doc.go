// Package tests runs the built binary as a user does: processes, files, signals.
package tests

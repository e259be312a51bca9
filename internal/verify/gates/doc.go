// Package gates is `tidemark verify`: it reads the journals of a business stream again,
// lets the independent oracle recompute every window, and answers one row a gate.
//
// It trusts nothing but the events and quarantine journals; windows, revisions and the
// numbers in COMMITs are what it checks.
package gates

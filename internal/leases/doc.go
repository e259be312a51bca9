// Package leases tells who should try to own a partition. A lease is a liveness hint
// only: the journal decides who wins.
package leases

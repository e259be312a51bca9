// Package windower computes windows: it reads the events journal of a key partition, runs
// the pure core over it, and writes what the core says into a windows journal.
//
// There is one unit for every (business stream, job, generation, key partition). A unit
// takes its lease, claims its windows journal, restores its checkpoint, runs the core to
// every COMMIT the journal holds beyond it, compares, and goes on live:
//
//	events journal → operator → records → windows journal (records and COMMIT, one message)
//	                     └→ every few seconds, at one acknowledged COMMIT → checkpoint file
//
// The checkpoint is a cache. What the journals say is the truth, and a difference between
// what the core computes and what a COMMIT says stops the unit for good.
package windower

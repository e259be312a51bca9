// Package window turns the records of one events journal into the records of one windows
// journal: the pure heart of the windower.
//
// An Operator belongs to one (policy generation, key partition). It is not safe for
// concurrent use and does no I/O; the host owns the loop:
//
//  1. Apply each record of each frame, in journal order.
//  2. After each Apply, call Next until it answers false; every answer is one encoded
//     record for the windows journal. The outputs of one input record are ordered by
//     (end, start, key) and may be cut into several commits anywhere but inside a group:
//     sessions that change places (see InGroup and GroupBytes).
//  3. A commit's position is the input record last applied plus the number of its
//     outputs already taken from Next; Position answers it.
//  4. Checkpoint only when Next answered false, at exactly an acknowledged commit.
//
// What must hold: the sequence of all records is a function of the events journal and
// the policy alone.
package window

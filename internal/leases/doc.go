// Package leases spreads partitions over the processes of a service. A lease is a
// liveness hint only: it says who should try to own a partition, the journal decides.
//
// Everything stands in one bucket, and nothing in it is a time:
//
//   - a member entry for every process and role. The process writes it again three times
//     a ttl; its revision is the heartbeat. It tells which units the process wants.
//   - a lease entry for every unit, written once when it is taken and deleted when it is
//     given back. It is good as long as the member behind it is alive.
//
// Every process watches all of it. A member is silent when its heartbeat did not move for
// a ttl of the watcher's own monotonic time, up to the watcher's own last heartbeat: what
// a server that was away, or a watcher that stood still, did not show is held against
// nobody. From the same entries every process computes the same spread: each unit goes to
// the member that rendezvous hashing puts first and that has not its share yet.
//
// A holder that sees a unit belong elsewhere is asked to yield: it finishes, and gives the
// lease back. The preferred member takes a free lease at once, any other only when it was
// free for a ttl. A member counts for others once it was alive for a ttl, and a unit that
// failed in its hands is not wanted for a while: so nothing moves to and fro.
package leases

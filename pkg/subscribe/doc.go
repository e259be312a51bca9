// Package subscribe follows the revisions of a job: the public feed of Tidemark for Go
// programs. It needs a NATS connection and read access to the revisions stream, nothing
// else of Tidemark.
//
//	sub, err := subscribe.Open(ctx, nc, subscribe.Options{Stream: "orders", Job: "hourly-revenue"})
//	for {
//		batch, err := sub.Next(ctx)
//		… apply batch.Revisions as one, then keep batch.Token …
//	}
//
// What holds:
//
//   - Only whole batches. Revisions that were accepted together are handed over together;
//     what a projector wrote without its COMMIT is never seen. A window that moves from
//     one projection to another (sessions that merge) is never seen twice nor not at all.
//   - In order. The revisions of a projection come as 1, 2, 3…
//   - Resumable. Batch.Token says how far the batch reaches. A subscription opened From a
//     token goes on behind it without repeating or leaving out a batch. A consumer that
//     crashes between applying a batch and keeping its token gets that batch again: keep
//     both in one transaction, or skip repetitions with Seen.
//   - One generation. Without Options.Generation the job's canonical one is followed, as
//     the alias says at Open. When the alias moves to another generation while the
//     subscription is open, or has moved since the token was made, the answer is a
//     *SwitchedError: everything before the switch has been handed over. Open again
//     without From to get the new generation's revisions from the first on; they replace
//     the old ones.
package subscribe

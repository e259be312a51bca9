// Package webhook sends the revisions of a job to one HTTP endpoint, signed by the
// Standard Webhooks rules.
//
// What holds:
//
//   - At least once. Deliveries and the position in the feed stand in one local file and
//     move in one transaction; a process that dies goes on where it was. A repeated
//     delivery has the same webhook-id and the same bytes, only its timestamp and its
//     signature are new.
//   - In order. Deliveries of a projection are made one after the other; sessions that
//     replace one another are delivered in the order of the feed, over projections. In
//     mode upsert a delivery that waits may give way to a newer revision of its
//     projection, in mode delta it may not.
//   - DELIVERED is not APPLIED. A 2xx answer says that the receiver has the bytes. A
//     signed receipt of the receiver, or a look at its state, makes the delivery APPLIED
//     or REFUSED. One that stays DELIVERED beyond the agreed time is an alert.
package webhook

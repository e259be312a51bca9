// Package effectlog reads an effects journal: what authorised processes put in (CONTROL,
// COMMAND and EVIDENCE records), what the owner answers (effect.Record and Done), and the
// state that follows from them: gates, active policies and adapters, the canonical
// generation of each job, and the commands that wait for an answer.
//
// Everything but the owner's commits is written blindly (no expected sequence), so a record
// may stand in the journal twice, or land late. Each therefore names its author's Stamp: an
// id, and the journal's last sequence as its author saw it. A record that lands more than
// Span behind that is void, and so is a second one with the same id; what has to be
// remembered for it is bounded by Span.
//
// Effects themselves are not kept here.
package effectlog

// Package oracle recomputes from an events journal what readers must see. It shares no
// code with the engine: it imports pkg/ only for the wire types and documents, reads
// event times and values from the raw data again, and computes watermark, lateness,
// windows and aggregates in the plainest way that the design allows, with big integers.
//
// Slow is fine here; being the same as the engine by construction is not.
package oracle

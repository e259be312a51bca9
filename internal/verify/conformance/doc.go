// Package conformance runs the text traces of testdata against the pure core. The traces
// are the boundary rules of the design and what the best systems of the field pin in
// their tests, translated.
package conformance

// Package effectrule answers what an effect policy makes of a revision: whether its rule
// holds, which bytes are sent, what evidence must repeat, and whether an airlock holds
// the effect. Expressions are CEL, type-checked against the job's aggregates before any
// revision is seen; numbers are exact, and the same revision gives the same bytes on
// every machine.
package effectrule

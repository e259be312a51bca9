package aggregate

// newLast answers last: the value of the event with the greatest event time; among those
// of one time, of the greatest source, then of the greatest id, bytewise.
func newLast(d declaration) (Func, error) { return newEdge(d, "last", true) }

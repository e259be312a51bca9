package aggregate

// newFirst answers first: the value of the event with the least event time; among those
// of one time, of the least source, then of the least id, bytewise.
func newFirst(d declaration) (Func, error) { return newEdge(d, "first", false) }

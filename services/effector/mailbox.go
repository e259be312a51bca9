package effector

import "sync"

// mailbox hands things from many goroutines to one. Putting never blocks: whoever had
// something to say while nobody owned the partition is heard by the next owner here.
type mailbox[T any] struct {
	mu   sync.Mutex
	list []T
	wake chan struct{}
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{wake: make(chan struct{}, 1)} }

func (m *mailbox[T]) put(item T) {
	m.mu.Lock()
	m.list = append(m.list, item)
	m.mu.Unlock()
	poke(m.wake)
}

// take answers everything that was put, in order.
func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.list
	m.list = nil
	return list
}

// poke wakes whoever listens, once.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

package window

import "math/bits"

// blob is a stretch of bytes in blobs that can grow: millions of sessions cost no objects.
type blob struct {
	slab, at, size uint32
	class          uint8 // 0 = no memory yet
}

// Blobs come in classes of two sizes an octave, 96 and 128 bytes the least; above the
// largest class a blob has memory of its own.
const (
	slabBytes  = 1 << 20
	leastBits  = 6 // class 1 has 64+32 bytes
	classCount = 20
	ownClass   = classCount + 1
)

// blobs gives out and takes back stretches of bytes.
type blobs struct {
	slabs [][]byte
	gone  []uint32                 // places of slabs that were given back
	free  [classCount + 1][]uint64 // per class: slab and place of what can be used again
	slab  uint32                   // being cut up
	used  uint32                   // of it
	begun bool                     // there is one
}

func classSize(class uint8) uint32 {
	octave := leastBits + uint32(class-1)/2
	if class%2 == 1 {
		return 1<<octave + 1<<(octave-1)
	}
	return 1 << (octave + 1)
}

// classFor answers the least class that holds so many bytes.
func classFor(n uint32) uint8 {
	if n <= classSize(1) {
		return 1
	}
	octave := uint32(bits.Len32(n-1)) - 1 // 2^octave < n <= 2^(octave+1)
	if octave > leastBits+classCount/2 {
		return ownClass
	}
	class := uint8(octave-leastBits)*2 + 1
	if n > classSize(class) {
		class++
	}
	if class > classCount {
		return ownClass
	}
	return class
}

func (m *blobs) bytes(b blob) []byte {
	if b.class == 0 {
		return nil
	}
	return m.slabs[b.slab][b.at : b.at+b.size : b.at+b.size]
}

func (m *blobs) room(b *blob) uint32 {
	switch b.class {
	case 0:
		return 0
	case ownClass:
		return uint32(len(m.slabs[b.slab]))
	}
	return classSize(b.class)
}

// extend makes the blob n bytes longer and answers those bytes, whatever they hold.
func (m *blobs) extend(b *blob, n int) []byte {
	size := b.size + uint32(n)
	if size > m.room(b) {
		old := *b
		*b = m.take(max(size, old.size+old.size/2))
		b.size = old.size
		copy(m.bytes(*b), m.bytes(old))
		m.release(&old)
	}
	from := b.at + b.size
	b.size = size
	return m.slabs[b.slab][from : b.at+size : b.at+size]
}

// take answers an empty blob with room for so many bytes.
func (m *blobs) take(size uint32) blob {
	class := classFor(size)
	if class == ownClass {
		return blob{slab: m.addSlab(make([]byte, size)), class: ownClass}
	}
	if last := len(m.free[class]) - 1; last >= 0 {
		at := m.free[class][last]
		m.free[class] = m.free[class][:last]
		return blob{slab: uint32(at >> 32), at: uint32(at), class: class}
	}
	size = classSize(class)
	if !m.begun || m.used+size > slabBytes {
		m.slab, m.used, m.begun = m.addSlab(make([]byte, slabBytes)), 0, true
	}
	b := blob{slab: m.slab, at: m.used, class: class}
	m.used += size
	return b
}

func (m *blobs) addSlab(slab []byte) uint32 {
	if last := len(m.gone) - 1; last >= 0 {
		at := m.gone[last]
		m.gone = m.gone[:last]
		m.slabs[at] = slab
		return at
	}
	m.slabs = append(m.slabs, slab)
	return uint32(len(m.slabs) - 1)
}

// release takes the blob's memory back and empties it.
func (m *blobs) release(b *blob) {
	switch b.class {
	case 0:
	case ownClass:
		m.slabs[b.slab] = nil
		m.gone = append(m.gone, b.slab)
	default:
		m.free[b.class] = append(m.free[b.class], uint64(b.slab)<<32|uint64(b.at))
	}
	*b = blob{}
}

// cut takes n bytes at a place out of the blob.
func (m *blobs) cut(b *blob, from, n int) {
	all := m.bytes(*b)
	copy(all[from:], all[from+n:])
	b.size -= uint32(n)
}

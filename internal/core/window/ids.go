package window

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/tidemark-mesh/tidemark/pkg/envelope"
)

// idEntry is what is remembered of one (key, source, id): 48 bytes without pointers,
// since most of the state's memory is ids.
type idEntry struct {
	hash   [16]byte // of source and id
	digest [16]byte // first half of the event's digest
	time   envelope.EventTime
	key    uint32
	flags  uint32
}

// Flags of an id.
const (
	idRetraction = 1 << iota // the event is a retraction; its target stands in idIndex.targets
	idNamed                  // a retraction names the event: it does not count, or waits for its disposition
	idReserved               // the retraction came first; the event itself has not come yet
	idDead                   // forgotten before its bucket was
)

// Entries live in chunks of at most chunkSize; a reference is chunk number and place.
const (
	chunkBits  = 10
	chunkSize  = 1 << chunkBits
	firstChunk = 16 // the first chunks of a bucket are small: many buckets hold few ids
	shardBits  = 8
)

type (
	idChunk struct {
		entries []idEntry // capacity fixed at creation
		bucket  int64
		place   uint32 // in its bucket
		dirty   bool   // changed since the last Delta
	}
	// idBucket holds the ids of one stretch of event time, to be forgotten together.
	idBucket struct {
		chunks []uint32
		stored int // chunks that Deltas wrote
	}
	// removedBucket names what a Delta must delete of a bucket.
	removedBucket struct {
		bucket int64
		chunks int
	}
	// idShard is an open-addressing table with linear probing: a slot holds the low half
	// of the mixed hash above the reference plus one; 0 is empty.
	idShard struct {
		slots []uint64
		used  int
	}
)

// idIndex answers whether a (key, source, id) was had. It forgets an id exactly at
// W >= event time + keep, and gives memory back bucket by bucket.
type idIndex struct {
	keep  int64 // retention.ids, microseconds
	width int64 // of a bucket, microseconds

	shards  [1 << shardBits]idShard
	chunks  []idChunk
	free    []uint32 // chunk numbers to use again
	buckets map[int64]*idBucket
	targets map[uint32][16]byte // reference of a retraction's id to the hash of its target
	live    int

	swept   int64           // buckets below are gone
	removed []removedBucket // that Deltas wrote and that are gone since
	keys    *keyTable
}

func newIDIndex(keep int64, keys *keyTable) idIndex {
	return idIndex{
		keep: keep, width: max(keep/32, 1_000_000), keys: keys,
		buckets: make(map[int64]*idBucket), targets: make(map[uint32][16]byte), swept: math.MinInt64,
	}
}

func mixID(hash [16]byte, key uint32) uint64 {
	h := binary.LittleEndian.Uint64(hash[:8]) ^ uint64(key)*0x9E3779B97F4A7C15
	return (h ^ h>>29) * 0xBF58476D1CE4E5B9
}

func (x *idIndex) shard(mixed uint64) *idShard { return &x.shards[mixed>>(64-shardBits)] }

func (x *idIndex) entry(ref uint32) *idEntry {
	return &x.chunks[ref>>chunkBits].entries[ref&(chunkSize-1)]
}

// touch notes that an entry changed.
func (x *idIndex) touch(ref uint32) { x.chunks[ref>>chunkBits].dirty = true }

// find answers the reference of an id that is still kept under watermark w.
func (x *idIndex) find(hash [16]byte, key uint32, w envelope.EventTime) (ref uint32, ok bool) {
	ref, ok = x.lookup(hash, key)
	if ok && !x.keeps(x.entry(ref).time, w) {
		return 0, false
	}
	return ref, ok
}

func (x *idIndex) lookup(hash [16]byte, key uint32) (uint32, bool) {
	mixed := mixID(hash, key)
	s := x.shard(mixed)
	if s.used == 0 {
		return 0, false
	}
	mask := uint64(len(s.slots) - 1)
	for at := mixed & mask; ; at = (at + 1) & mask {
		slot := s.slots[at]
		if slot == 0 {
			return 0, false
		}
		if uint32(slot>>32) != uint32(mixed) {
			continue
		}
		ref := uint32(slot) - 1
		if e := x.entry(ref); e.hash == hash && e.key == key {
			return ref, true
		}
	}
}

// keeps tells whether an id of that event time would still be kept under watermark w.
func (x *idIndex) keeps(t, w envelope.EventTime) bool { return w < t.Add(x.keep) }

// insert adds an id that find did not answer. One that is forgotten but still stands in
// its bucket makes room.
func (x *idIndex) insert(e idEntry) uint32 {
	x.keys.retain(e.key) // first: forgetting may give back the last reference
	if old, ok := x.lookup(e.hash, e.key); ok {
		x.forget(old)
	}
	ref := x.add(e)
	x.link(ref)
	return ref
}

// add puts the entry into the bucket of its event time.
func (x *idIndex) add(e idEntry) uint32 {
	number := floorDiv(int64(e.time), x.width)
	b := x.buckets[number]
	if b == nil {
		b = &idBucket{}
		x.buckets[number] = b
	}
	if n := len(b.chunks); n == 0 || x.full(b.chunks[n-1]) {
		b.chunks = append(b.chunks, x.newChunk(number, n))
	}
	chunk := b.chunks[len(b.chunks)-1]
	c := &x.chunks[chunk]
	c.entries = append(c.entries, e)
	c.dirty = true
	return chunk<<chunkBits | uint32(len(c.entries)-1)
}

func (x *idIndex) full(chunk uint32) bool {
	c := &x.chunks[chunk]
	return len(c.entries) == cap(c.entries)
}

// chunkCapacity answers how many entries the chunk at a place of a bucket holds.
func chunkCapacity(place int) int {
	return min(firstChunk<<(2*min(place, 4)), chunkSize)
}

func (x *idIndex) newChunk(bucket int64, place int) uint32 {
	c := idChunk{entries: make([]idEntry, 0, chunkCapacity(place)), bucket: bucket, place: uint32(place)}
	if last := len(x.free) - 1; last >= 0 {
		n := x.free[last]
		x.free = x.free[:last]
		x.chunks[n] = c
		return n
	}
	x.chunks = append(x.chunks, c)
	return uint32(len(x.chunks) - 1)
}

// link enters the entry into its shard.
func (x *idIndex) link(ref uint32) {
	e := x.entry(ref)
	mixed := mixID(e.hash, e.key)
	s := x.shard(mixed)
	if 4*(s.used+1) > 3*len(s.slots) {
		s.grow()
	}
	s.put(uint64(uint32(mixed))<<32 | uint64(ref+1))
	s.used++
	x.live++
}

func (s *idShard) put(slot uint64) {
	mask := uint64(len(s.slots) - 1)
	at := slot >> 32 & mask
	for s.slots[at] != 0 {
		at = (at + 1) & mask
	}
	s.slots[at] = slot
}

func (s *idShard) grow() {
	old := s.slots
	s.slots = make([]uint64, max(16, 2*len(old)))
	for _, slot := range old {
		if slot != 0 {
			s.put(slot)
		}
	}
}

// unlink takes the entry out of its shard and closes the gap, so that no probe ends early.
func (x *idIndex) unlink(ref uint32) {
	e := x.entry(ref)
	mixed := mixID(e.hash, e.key)
	s := x.shard(mixed)
	mask := uint64(len(s.slots) - 1)
	at := mixed & mask
	for uint32(s.slots[at]) != ref+1 {
		at = (at + 1) & mask
	}
	for next := (at + 1) & mask; s.slots[next] != 0; next = (next + 1) & mask {
		home := s.slots[next] >> 32 & mask
		if (next-home)&mask >= (next-at)&mask {
			s.slots[at] = s.slots[next]
			at = next
		}
	}
	s.slots[at] = 0
	s.used--
	x.live--
}

// forget takes one entry out of the index; its bytes stay until the bucket goes.
func (x *idIndex) forget(ref uint32) {
	x.unlink(ref)
	e := x.entry(ref)
	x.keys.release(e.key)
	e.flags |= idDead
	x.touch(ref)
	delete(x.targets, ref)
}

// sweep gives back every bucket whose ids are all forgotten under watermark w.
func (x *idIndex) sweep(w envelope.EventTime) {
	edge := int64(math.MaxInt64) // first bucket that may hold an id still kept
	if w != envelope.MaxEventTime {
		edge = floorDiv(int64(w.Add(-x.keep)), x.width)
	}
	if edge <= x.swept {
		return
	}
	x.swept = edge
	var gone []int64
	for number := range x.buckets {
		if number < edge {
			gone = append(gone, number)
		}
	}
	slices.Sort(gone)
	if len(gone) == len(x.buckets) { // nothing stays: no entry need be sought in the tables
		clear(x.shards[:])
		clear(x.targets)
		x.live = 0
		for _, number := range gone {
			x.drop(number, func(_ uint32, e *idEntry) { x.keys.release(e.key) })
		}
		return
	}
	for _, number := range gone {
		x.drop(number, func(ref uint32, _ *idEntry) { x.forget(ref) })
	}
}

// drop gives a bucket back; forget is called for every entry that is still in the index.
func (x *idIndex) drop(number int64, forget func(ref uint32, e *idEntry)) {
	b := x.buckets[number]
	for _, chunk := range b.chunks {
		c := &x.chunks[chunk]
		for i := range c.entries {
			if c.entries[i].flags&idDead == 0 {
				forget(chunk<<chunkBits|uint32(i), &c.entries[i])
			}
		}
		*c = idChunk{}
		x.free = append(x.free, chunk)
	}
	if b.stored > 0 {
		x.removed = append(x.removed, removedBucket{bucket: number, chunks: b.stored})
	}
	delete(x.buckets, number)
}

package dispatchfile

import (
	"encoding/binary"
	"fmt"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
)

// encode answers the key in the order bucket, whose tail is the key in the attempts bucket,
// and the value there.
func (e *Entry) encode() (key, value []byte) {
	key = binary.BigEndian.AppendUint64(make([]byte, 0, orderBytes), e.Seq)
	key = append(key, e.Key[:]...)
	key = binary.BigEndian.AppendUint32(key, e.Attempt)
	value = binary.BigEndian.AppendUint64(make([]byte, 0, valueBytes), e.Epoch)
	value = binary.BigEndian.AppendUint64(value, e.Seq)
	return key, append(value, e.Digest[:]...)
}

// entry answers the attempt that a key of the order bucket names.
func (f *File) entry(attempts *checkpoint.Bucket, key []byte) (Entry, error) {
	if len(key) != orderBytes {
		return Entry{}, f.damaged(fmt.Sprintf("an entry's key has %d bytes", len(key)))
	}
	value, err := attempts.Get(key[8:])
	if err != nil {
		return Entry{}, err
	}
	if len(value) != valueBytes || binary.BigEndian.Uint64(value[8:]) != binary.BigEndian.Uint64(key) {
		return Entry{}, f.damaged("its attempts and their order do not fit together")
	}
	e := Entry{
		Attempt: binary.BigEndian.Uint32(key[8+keyBytes:]),
		Epoch:   binary.BigEndian.Uint64(value),
		Seq:     binary.BigEndian.Uint64(key),
	}
	copy(e.Key[:], key[8:])
	copy(e.Digest[:], value[16:])
	return e, nil
}

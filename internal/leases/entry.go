package leases

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"slices"
)

// memberEntry is what a process says of itself, three times a ttl.
type memberEntry struct {
	Instance string `json:"instance"`
	Address  string `json:"address,omitempty"`
	Session  string `json:"session"` // of one start: tells a restarted process from itself
	TTLMs    int64  `json:"ttlMs"`
	Wants    string `json:"wants,omitempty"` // units it holds or would take: see wants
}

// leaseEntry is who took a unit.
type leaseEntry struct {
	Instance string `json:"instance"`
	Address  string `json:"address,omitempty"`
	Session  string `json:"session"`
	Term     string `json:"term"` // of one Acquire
}

// encode writes entries, which always marshal: strings and a number.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// wants is a set of units, each as 4 bytes of its hash. Two units of one hash only make a
// preference less exact.
type wants map[uint32]bool

func unitHash(key string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(key))
	return h.Sum32()
}

func (w wants) encode() string {
	hashes := make([]uint32, 0, len(w))
	for h := range w {
		hashes = append(hashes, h)
	}
	slices.Sort(hashes)
	data := make([]byte, 0, 4*len(hashes))
	for _, h := range hashes {
		data = binary.BigEndian.AppendUint32(data, h)
	}
	return base64.RawStdEncoding.EncodeToString(data)
}

// decodeWants reads what encode wrote; what cannot be read is wanted by nobody.
func decodeWants(text string) wants {
	data, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	w := make(wants, len(data)/4)
	for ; len(data) >= 4; data = data[4:] {
		w[binary.BigEndian.Uint32(data)] = true
	}
	return w
}

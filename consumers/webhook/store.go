package webhook

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tidemark-mesh/tidemark/internal/checkpoint"
)

// StateKind and StateFormat name the state file.
const (
	StateKind   = "webhook"
	StateFormat = 1
)

// Buckets of the state file.
const (
	deliveriesBucket = "deliveries" // sequence → Delivery
	bodiesBucket     = "bodies"     // sequence → bytes that are sent
	idsBucket        = "ids"        // webhook-id → sequence
	headsBucket      = "heads"      // projection → highest revision that the receiver has
)

// position is what the file knows besides deliveries.
type position struct {
	Endpoint   string    `json:"endpoint"`
	Stream     string    `json:"stream"`
	Job        string    `json:"job"`
	Mode       string    `json:"mode"`
	Token      string    `json:"token,omitempty"` // of the feed, behind the last batch taken in
	Generation int       `json:"generation,omitempty"`
	Barrier    uint64    `json:"barrier,omitempty"` // sequence of the last generation.switched
	Last       uint64    `json:"last,omitempty"`    // sequence of the last delivery
	Disabled   *disabled `json:"disabled,omitempty"`
	PausedTo   time.Time `json:"pausedTo,omitzero"` // the endpoint asked for quiet until then
}

// disabled says since when and why nothing is sent.
type disabled struct {
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
}

const positionMeta = "position"

// openStore opens the state file of an endpoint, or makes it. A file of another endpoint,
// job or mode is refused: its deliveries would go to the wrong place.
func openStore(path string, e *Endpoint) (*checkpoint.Store, position, error) {
	own := position{Endpoint: e.Name, Stream: e.Stream, Job: e.Job, Mode: e.Mode}
	s, err := checkpoint.Open(path, checkpoint.Kind{Name: StateKind, Format: StateFormat})
	if err != nil {
		return nil, own, err
	}
	var p position
	err = s.Update(func(tx *checkpoint.Tx) error {
		found, err := tx.Meta(positionMeta, &p)
		if err == nil && !found {
			p = own
			return tx.SetMeta(positionMeta, &p)
		}
		return err
	})
	if err == nil && (p.Endpoint != own.Endpoint || p.Stream != own.Stream || p.Job != own.Job || p.Mode != own.Mode) {
		err = fmt.Errorf("%s belongs to endpoint %s (job %s of stream %s, mode %s); give %s a data directory of its own", path, p.Endpoint, p.Job, p.Stream, p.Mode, e.Name)
	}
	if err != nil {
		_ = s.Close() // the error that matters is the one above
		return nil, own, err
	}
	return s, p, nil
}

func sequenceKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// records are the buckets of one transaction.
type records struct {
	tx                             *checkpoint.Tx
	deliveries, bodies, ids, heads *checkpoint.Bucket
}

func recordsOf(tx *checkpoint.Tx) (*records, error) {
	r := &records{tx: tx}
	for name, into := range map[string]**checkpoint.Bucket{
		deliveriesBucket: &r.deliveries, bodiesBucket: &r.bodies, idsBucket: &r.ids, headsBucket: &r.heads,
	} {
		b, err := tx.Bucket(name)
		if err != nil {
			return nil, err
		}
		*into = b
	}
	return r, nil
}

func (r *records) put(d *Delivery) error {
	text, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("delivery %s: %w", d.ID, err)
	}
	return r.deliveries.Put(sequenceKey(d.Sequence), text)
}

// add stores a delivery that is new.
func (r *records) add(d *Delivery, body []byte) error {
	if err := r.put(d); err != nil {
		return err
	}
	if err := r.bodies.Put(sequenceKey(d.Sequence), body); err != nil {
		return err
	}
	return r.ids.Put([]byte(d.ID), sequenceKey(d.Sequence))
}

// remove forgets a delivery that is closed.
func (r *records) remove(d *Delivery) error {
	key := sequenceKey(d.Sequence)
	if err := r.deliveries.Delete(key); err != nil {
		return err
	}
	if err := r.bodies.Delete(key); err != nil {
		return err
	}
	if at, err := r.ids.Get([]byte(d.ID)); err != nil || string(at) != string(key) {
		return err // a later delivery has the same id
	}
	return r.ids.Delete([]byte(d.ID))
}

// get answers the delivery with a sequence, nil where there is none.
func (r *records) get(key []byte) (*Delivery, error) {
	text, err := r.deliveries.Get(key)
	if text == nil || err != nil {
		return nil, err
	}
	d := &Delivery{}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("delivery %x of the state file: %w", key, err)
	}
	return d, nil
}

// byID answers the last delivery with a webhook-id, nil where there is none.
func (r *records) byID(id string) (*Delivery, error) {
	key, err := r.ids.Get([]byte(id))
	if key == nil || err != nil {
		return nil, err
	}
	return r.get(key)
}

// head answers the highest revision of a projection that the receiver has.
func (r *records) head(projectionID string) (uint64, error) {
	text, err := r.heads.Get([]byte(projectionID))
	if text == nil || err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(text), nil
}

// reached notes that the receiver has a delivery.
func (r *records) reached(d *Delivery) error {
	if d.ProjectionID == "" {
		return nil
	}
	head, err := r.head(d.ProjectionID)
	if err != nil || head >= d.Revision {
		return err
	}
	return r.heads.Put([]byte(d.ProjectionID), sequenceKey(d.Revision))
}

// each calls fn for every delivery in the order of the feed until it answers false.
func (r *records) each(fn func(*Delivery) (more bool, err error)) error {
	return r.deliveries.Range(nil, nil, func(_, value []byte) (bool, error) {
		d := &Delivery{}
		if err := json.Unmarshal(value, d); err != nil {
			return false, fmt.Errorf("state file: %w", err)
		}
		return fn(d)
	})
}

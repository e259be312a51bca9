package natsio

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// ErrConfig: a stream or bucket exists with a configuration that Tidemark cannot work with.
var ErrConfig = errors.New("exists with another configuration")

// previewAge is how long an early result is kept: it is worthless once its window fired.
const (
	previewAge   = 10 * time.Minute
	previewBytes = 64 << 20
	// minDuplicates is the least dedupe window the server takes: nothing leans on it.
	minDuplicates = 100 * time.Millisecond
)

// Provision creates what every installation needs: buckets tm_config, tm_leases, object
// store tm_snapshots, stream TM_AUDIT. replicas is 1 or 3. It may run any number of times;
// what exists with another essential configuration is ErrConfig.
func Provision(ctx context.Context, js jetstream.JetStream, replicas int) error {
	if err := checkReplicas(replicas); err != nil {
		return err
	}
	buckets := []jetstream.KeyValueConfig{
		{Bucket: subject.ConfigBucket, Description: "Tidemark documents", History: 16, Storage: jetstream.FileStorage, Replicas: replicas},
		{Bucket: subject.LeaseBucket, Description: "Tidemark leases: liveness only", History: 1, Storage: jetstream.FileStorage, Replicas: replicas},
	}
	for _, bucket := range buckets {
		if err := ensureBucket(ctx, js, bucket); err != nil {
			return err
		}
	}
	if err := ensureObjects(ctx, js, replicas); err != nil {
		return err
	}
	return ensureStream(ctx, js, auditJournal(replicas))
}

func auditJournal(replicas int) jetstream.StreamConfig {
	audit := journal(subject.AuditStream, replicas, subject.AuditAll)
	audit.AllowDirect = true
	return audit
}

// ProvisionStream creates the streams of a business stream (events, quarantine, sources,
// revisions, early).
func ProvisionStream(ctx context.Context, js jetstream.JetStream, bs string, partitions, replicas int) error {
	if err := checkReplicas(replicas); err != nil {
		return err
	}
	for _, config := range streamJournals(bs, partitions, replicas) {
		if err := ensureStream(ctx, js, config); err != nil {
			return err
		}
	}
	return nil
}

// streamJournals lists the streams of a business stream.
func streamJournals(bs string, partitions, replicas int) []jetstream.StreamConfig {
	configs := make([]jetstream.StreamConfig, 0, partitions+4)
	for pp := range partitions {
		configs = append(configs, journal(subject.EventsStream(bs, pp), replicas, subject.Events(bs, pp)))
	}
	quarantine := journal(subject.QuarantineStream(bs), replicas, subject.QuarantineAll(bs))
	quarantine.AllowDirect = true
	quarantine.AllowAtomicPublish = true // refused events come in batches, one sync each
	sources := journal(subject.SourcesStream(bs), replicas, subject.SourcesAll(bs))
	revisions := journal(subject.RevisionsStream(bs), replicas, subject.RevisionsAll(bs), subject.CommitsAll(bs), subject.AliasAll(bs))
	revisions.AllowAtomicPublish = true
	return append(configs, quarantine, sources, revisions, previews(bs, replicas))
}

// ProvisionPolicy creates the windows journals of a policy generation.
func ProvisionPolicy(ctx context.Context, js jetstream.JetStream, bs, job string, gen, partitions, replicas int) error {
	if err := checkReplicas(replicas); err != nil {
		return err
	}
	for pp := range partitions {
		if err := ensureStream(ctx, js, windowsJournal(bs, job, gen, pp, replicas)); err != nil {
			return err
		}
	}
	return nil
}

func windowsJournal(bs, job string, gen, pp, replicas int) jetstream.StreamConfig {
	config := journal(subject.WindowsStream(bs, job, gen, pp), replicas, subject.Windows(bs, job, gen, pp))
	config.AllowAtomicPublish = true // claims and control records are barriers: see internal/journal
	return config
}

// ProvisionEffects creates the effects journals of a business stream.
func ProvisionEffects(ctx context.Context, js jetstream.JetStream, bs string, partitions, replicas int) error {
	if err := checkReplicas(replicas); err != nil {
		return err
	}
	for pp := range partitions {
		if err := ensureStream(ctx, js, effectsJournal(bs, pp, replicas)); err != nil {
			return err
		}
	}
	return nil
}

func effectsJournal(bs string, pp, replicas int) jetstream.StreamConfig {
	config := journal(subject.EffectsStream(bs, pp), replicas, subject.Effects(bs, pp))
	config.AllowAtomicPublish = true // as in windows journals
	return config
}

func checkReplicas(replicas int) error {
	if replicas != 1 && replicas != 3 {
		return fmt.Errorf("replicas is %d; journals have 1 replica on a single server or 3 in a cluster", replicas)
	}
	return nil
}

// journal is the configuration of every stream that holds facts. Reads go to the leader
// (no allow_direct): a replica may answer with a tail that is not the last.
func journal(name string, replicas int, subjects ...string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:         name,
		Subjects:     subjects,
		Retention:    jetstream.LimitsPolicy,
		Storage:      jetstream.FileStorage,
		Discard:      jetstream.DiscardNew,
		Replicas:     replicas,
		MaxConsumers: -1,
		MaxMsgs:      -1,
		MaxBytes:     -1,
		MaxMsgSize:   MaxPayload,
		Duplicates:   minDuplicates,
		DenyDelete:   true,
		DenyPurge:    true,
	}
}

// previews are not facts: a full or old stream drops its oldest.
func previews(bs string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:         subject.EarlyStream(bs),
		Subjects:     []string{subject.EarlyAll(bs)},
		Retention:    jetstream.LimitsPolicy,
		Storage:      jetstream.MemoryStorage,
		Discard:      jetstream.DiscardOld,
		Replicas:     replicas,
		MaxConsumers: -1,
		MaxMsgs:      -1,
		MaxBytes:     previewBytes,
		MaxAge:       previewAge,
		MaxMsgSize:   MaxPayload,
		Duplicates:   minDuplicates,
		AllowDirect:  true,
	}
}

// ensureStream creates a stream, or checks the one that exists.
func ensureStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) error {
	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = placed(ctx, func() (jetstream.Stream, error) { return js.CreateStream(ctx, want) })
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			stream, err = js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", want.Name, err)
	}
	if diff := differences(want, stream.CachedInfo().Config); diff != "" {
		return fmt.Errorf("stream %s %w: %s; change it back with `nats stream edit`, or use another business stream", want.Name, ErrConfig, diff)
	}
	return nil
}

// differences lists essential settings of have that are not those of want, "" if none.
// Capacity (max_bytes and the like), placement and compression are the operator's.
func differences(want, have jetstream.StreamConfig) string {
	var out []string
	note := func(name string, w, h any) {
		if w != h {
			out = append(out, fmt.Sprintf("%s is %v, needed is %v", name, h, w))
		}
	}
	slices.Sort(want.Subjects)
	slices.Sort(have.Subjects)
	note("subjects", strings.Join(want.Subjects, " "), strings.Join(have.Subjects, " "))
	note("storage", want.Storage, have.Storage)
	note("retention", want.Retention, have.Retention)
	note("discard", want.Discard, have.Discard)
	note("deny_delete", want.DenyDelete, have.DenyDelete)
	note("deny_purge", want.DenyPurge, have.DenyPurge)
	note("allow_atomic", want.AllowAtomicPublish, have.AllowAtomicPublish)
	note("allow_direct", want.AllowDirect, have.AllowDirect)
	note("max_age", want.MaxAge, have.MaxAge)
	note("max_msgs_per_subject", int64(-1), have.MaxMsgsPerSubject)
	note("sealed", false, have.Sealed)
	note("mirror", false, have.Mirror != nil)
	note("sources", false, len(have.Sources) > 0)
	note("subject_transform", false, have.SubjectTransform != nil)
	note("allow_msg_ttl", false, have.AllowMsgTTL)
	note("allow_rollup_hdrs", false, have.AllowRollup)
	note("persist_mode", jetstream.DefaultPersistMode, have.PersistMode)
	if have.MaxMsgSize >= 0 && have.MaxMsgSize < want.MaxMsgSize {
		note("max_msg_size", want.MaxMsgSize, have.MaxMsgSize)
	}
	if have.Replicas < want.Replicas {
		note("num_replicas", want.Replicas, have.Replicas)
	}
	return strings.Join(out, ", ")
}

// ensureBucket creates a bucket whose reads go to the leader, which the bucket API itself
// never sets: a lease or document read from a replica may be an old one.
func ensureBucket(ctx context.Context, js jetstream.JetStream, want jetstream.KeyValueConfig) error {
	kv, err := js.KeyValue(ctx, want.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = placed(ctx, func() (jetstream.KeyValue, error) { return js.CreateKeyValue(ctx, want) })
		if errors.Is(err, jetstream.ErrBucketExists) {
			kv, err = js.KeyValue(ctx, want.Bucket)
		}
	}
	if err != nil {
		return fmt.Errorf("bucket %s: %w", want.Bucket, err)
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", want.Bucket, err)
	}
	if status.History() < int64(want.History) || status.TTL() != 0 {
		return fmt.Errorf("bucket %s %w: history %d and ttl %s, needed are %d and none", want.Bucket, ErrConfig, status.History(), status.TTL(), want.History)
	}
	bucket, ok := status.(*jetstream.KeyValueBucketStatus)
	if !ok {
		return fmt.Errorf("bucket %s: the client does not tell its stream", want.Bucket)
	}
	config := bucket.StreamInfo().Config
	if config.Replicas < want.Replicas || config.Storage != want.Storage {
		return fmt.Errorf("bucket %s %w: %d replicas on %v, needed are %d on %v", want.Bucket, ErrConfig, config.Replicas, config.Storage, want.Replicas, want.Storage)
	}
	if !config.AllowDirect {
		return nil
	}
	config.AllowDirect = false
	if _, err := js.UpdateStream(ctx, config); err != nil {
		return fmt.Errorf("bucket %s: switch reads to the leader: %w", want.Bucket, err)
	}
	return nil
}

func ensureObjects(ctx context.Context, js jetstream.JetStream, replicas int) error {
	store, err := js.ObjectStore(ctx, subject.SnapshotBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		store, err = placed(ctx, func() (jetstream.ObjectStore, error) {
			return js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
				Bucket: subject.SnapshotBucket, Description: "Tidemark checkpoints",
				Storage: jetstream.FileStorage, Replicas: replicas,
			})
		})
		if errors.Is(err, jetstream.ErrBucketExists) {
			store, err = js.ObjectStore(ctx, subject.SnapshotBucket)
		}
	}
	if err != nil {
		return fmt.Errorf("object store %s: %w", subject.SnapshotBucket, err)
	}
	status, err := store.Status(ctx)
	if err != nil {
		return fmt.Errorf("object store %s: %w", subject.SnapshotBucket, err)
	}
	if status.Replicas() < replicas || status.Storage() != jetstream.FileStorage {
		return fmt.Errorf("object store %s %w: %d replicas on %v, needed are %d on files", subject.SnapshotBucket, ErrConfig, status.Replicas(), status.Storage(), replicas)
	}
	return nil
}

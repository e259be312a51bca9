// Package subject builds and parses every stream, subject, bucket and header name that
// Tidemark uses. No other package writes such a name as a literal.
package subject

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Headers on messages.
const (
	HeaderSchema       = "Tm-Schema"            // type of the payload, e.g. revision.v1
	HeaderContentType  = "Content-Type"         // of ingest requests
	HeaderSource       = "Tm-Source"            // ingest requests: event source
	HeaderPartition    = "Tm-Partition"         // ingest requests: source partition number
	HeaderIDPath       = "Tm-Id-Path"           // ingest requests: JSON Pointer to the id in plain records
	HeaderResumeToken  = "Tm-Resume-Token"      // send: names one file
	HeaderResumeFrom   = "Tm-Resume-From"       // send: last line of the request before, 0 for the first
	HeaderResumeLine   = "Tm-Resume-Line"       // send: last line of the request
	HeaderFinish       = "Tm-Finish"            // send: no event follows in this source partition
	HeaderExpectStream = "Nats-Expected-Stream" // every publish carries it
	HeaderExpectSeq    = "Nats-Expected-Last-Sequence"
	HeaderExpectSubSeq = "Nats-Expected-Last-Subject-Sequence"
	HeaderBatchID      = "Nats-Batch-Id"
	HeaderBatchSeq     = "Nats-Batch-Sequence"
	HeaderBatchCommit  = "Nats-Batch-Commit"
	HeaderVerbose      = "Tm-Verbose" // ingest requests: the reply lists accepted items too
	HeaderTraceParent  = "traceparent"
	HeaderRetryAfter   = "Retry-After"
	// PrefixCloudEvent stands before attributes of binary-mode CloudEvents.
	PrefixCloudEvent = "ce-"
)

// Buckets and the audit stream, shared by all business streams.
const (
	ConfigBucket   = "tm_config"
	LeaseBucket    = "tm_leases"
	SnapshotBucket = "tm_snapshots"
	AuditStream    = "TM_AUDIT"
	AuditAll       = "tm.audit.>"
	// MetaCreated in a stream's metadata is the creation time (Unix nanoseconds) of the
	// stream that it was restored from. Created reads it.
	MetaCreated = "tidemark.created"
)

// Created answers the creation time by which journals know a stream, in Unix nanoseconds.
// A cluster gives a restored stream another one: its metadata then keeps the original's.
func Created(metadata map[string]string, created time.Time) int64 {
	if ns, err := strconv.ParseInt(metadata[MetaCreated], 10, 64); err == nil {
		return ns
	}
	return created.UnixNano()
}

// Escape writes every byte outside [A-Za-z0-9_-] as =XX so that any text is one subject token.
func Escape(text string) string {
	clean := true
	for i := 0; i < len(text); i++ {
		if !plain(text[i]) {
			clean = false
			break
		}
	}
	if clean {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + 8)
	for i := 0; i < len(text); i++ {
		if c := text[i]; plain(c) {
			b.WriteByte(c)
		} else {
			const hex = "0123456789ABCDEF"
			b.WriteByte('=')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

// Unescape reads what Escape wrote.
func Unescape(token string) (string, error) {
	if !strings.Contains(token, "=") {
		return token, nil
	}
	out := make([]byte, 0, len(token))
	for i := 0; i < len(token); i++ {
		if token[i] != '=' {
			out = append(out, token[i])
			continue
		}
		if i+2 >= len(token) {
			return "", fmt.Errorf("subject token %q ends inside an escape", token)
		}
		hi, lo := unhex(token[i+1]), unhex(token[i+2])
		if hi < 0 || lo < 0 {
			return "", fmt.Errorf("subject token %q holds a bad escape at byte %d", token, i)
		}
		out = append(out, byte(hi<<4|lo))
		i += 2
	}
	return string(out), nil
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// PP writes a key partition as 00, 01, ….
func PP(partition int) string { return fmt.Sprintf("%02d", partition) }

// EventsStream names the JetStream stream of one key partition's events journal.
func EventsStream(bs string, pp int) string { return "TM_" + bs + "_EVT_" + PP(pp) }

// Events is the subject of one key partition's events journal.
func Events(bs string, pp int) string { return "tm." + bs + ".events." + PP(pp) }

// QuarantineStream names the stream of quarantined events.
func QuarantineStream(bs string) string { return "TM_" + bs + "_QUA" }

// Quarantine is the subject of one reason.
func Quarantine(bs, reason string) string { return "tm." + bs + ".quarantine." + reason }

// QuarantineAll covers every reason.
func QuarantineAll(bs string) string { return "tm." + bs + ".quarantine.>" }

// dispositionToken stands where a reason stands in the subjects of quarantine records.
const dispositionToken = "disposition"

// QuarantineDisposition is the subject of decisions about quarantined events.
func QuarantineDisposition(bs string) string { return Quarantine(bs, dispositionToken) }

// SourcesStream names the stream of claims and checkpoints of source partitions.
func SourcesStream(bs string) string { return "TM_" + bs + "_SRC" }

// Source is the subject of one source partition in the sources journal.
func Source(bs, source string, partition uint32) string {
	return fmt.Sprintf("tm.%s.sources.%s.%d", bs, Escape(source), partition)
}

// SourcesAll covers every source partition.
func SourcesAll(bs string) string { return "tm." + bs + ".sources.>" }

// WindowsStream names the windows journal of one job, generation and key partition.
func WindowsStream(bs, job string, gen, pp int) string {
	return fmt.Sprintf("TM_%s_WIN_%s_%d_%s", bs, job, gen, PP(pp))
}

// Windows is the subject of one windows journal.
func Windows(bs, job string, gen, pp int) string {
	return fmt.Sprintf("tm.%s.windows.%s.%d.%s", bs, job, gen, PP(pp))
}

// RevisionsStream names the public stream of accepted revisions.
func RevisionsStream(bs string) string { return "TM_" + bs + "_REV" }

// Revision is the subject on which revisions of one key are published.
func Revision(bs, job string, gen, pp int, key string) string {
	return fmt.Sprintf("tm.%s.revisions.%s.%d.%s.%s", bs, job, gen, PP(pp), Escape(key))
}

// RevisionsOf covers all keys of one job, generation and key partition.
func RevisionsOf(bs, job string, gen, pp int) string {
	return fmt.Sprintf("tm.%s.revisions.%s.%d.%s.*", bs, job, gen, PP(pp))
}

// RevisionsOfGeneration covers all revisions of one job and generation.
func RevisionsOfGeneration(bs, job string, gen int) string {
	return fmt.Sprintf("tm.%s.revisions.%s.%d.>", bs, job, gen)
}

// RevisionsOfKey covers one key for a reader that does not know its key partition.
func RevisionsOfKey(bs, job string, gen int, key string) string {
	return fmt.Sprintf("tm.%s.revisions.%s.%d.*.%s", bs, job, gen, Escape(key))
}

// RevisionsAll covers every revision of a business stream.
func RevisionsAll(bs string) string { return "tm." + bs + ".revisions.>" }

// ParseRevision takes a revision's subject apart.
func ParseRevision(text string) (bs, job string, gen, pp int, key string, err error) {
	tokens := strings.Split(text, ".")
	if len(tokens) != 7 || tokens[0] != "tm" || tokens[2] != "revisions" {
		return "", "", 0, 0, "", fmt.Errorf("subject %q is none of a revision", text)
	}
	if _, err := fmt.Sscanf(tokens[4]+" "+tokens[5], "%d %d", &gen, &pp); err != nil {
		return "", "", 0, 0, "", fmt.Errorf("subject %q holds a bad generation or partition: %w", text, err)
	}
	key, err = Unescape(tokens[6])
	return tokens[1], tokens[3], gen, pp, key, err
}

// Commits is the literal fence subject: CLAIM and COMMIT of one job, generation and key partition.
func Commits(bs, job string, gen, pp int) string {
	return fmt.Sprintf("tm.%s.commits.%s.%d.%s", bs, job, gen, PP(pp))
}

// CommitsOf covers the fence subjects of one job and generation.
func CommitsOf(bs, job string, gen int) string {
	return fmt.Sprintf("tm.%s.commits.%s.%d.*", bs, job, gen)
}

// CommitsAll covers every fence subject.
func CommitsAll(bs string) string { return "tm." + bs + ".commits.>" }

// Alias is the subject of a job's canonical alias.
func Alias(bs, job string) string { return "tm." + bs + ".alias." + job }

// AliasAll covers every alias.
func AliasAll(bs string) string { return "tm." + bs + ".alias.>" }

// EffectsStream names the effects journal of one key partition.
func EffectsStream(bs string, pp int) string { return "TM_" + bs + "_EFF_" + PP(pp) }

// Effects is the subject of one effects journal.
func Effects(bs string, pp int) string { return "tm." + bs + ".effects." + PP(pp) }

// EffectsOf is the subject of the effects journal whose stream has that name, "" for
// other names.
func EffectsOf(stream string) string {
	rest, ours := strings.CutPrefix(stream, "TM_")
	at := strings.LastIndex(rest, "_EFF_")
	if !ours || at <= 0 {
		return ""
	}
	return "tm." + rest[:at] + ".effects." + rest[at+len("_EFF_"):]
}

// EarlyStream names the memory stream of previews.
func EarlyStream(bs string) string { return "TM_" + bs + "_EARLY" }

// Early is the subject of one key's previews.
func Early(bs, job string, gen int, key string) string {
	return fmt.Sprintf("tm.%s.early.%s.%d.%s", bs, job, gen, Escape(key))
}

// EarlyAll covers every preview.
func EarlyAll(bs string) string { return "tm." + bs + ".early.>" }

// Ingest is where the owner of a source partition answers requests that push events.
func Ingest(bs, source string, partition uint32) string {
	return fmt.Sprintf("tm.%s.ingest.%s.%d", bs, Escape(source), partition)
}

// IngestFlush asks every ingest process to write its marks now and to say how far the
// events journals reach.
func IngestFlush(bs string) string { return "tm." + bs + ".ingest-flush" }

// IngestQuarantine is where one of the ingest processes carries out decisions about
// quarantined events: it replays or discards them.
func IngestQuarantine(bs string) string { return "tm." + bs + ".ingest-quarantine" }

// IngestHold asks every ingest process to write no marks for a while, so that a backup
// of several journals is of one moment.
func IngestHold(bs string) string { return "tm." + bs + ".ingest-hold" }

// IngestQueue is the queue group in which ingest processes share requests that any of
// them can answer.
const IngestQueue = "ingest"

// Query is where projectors answer queries about one business stream; verb is one of
// "windows", "history", "status".
func Query(bs, verb string) string { return "tm." + bs + ".query." + verb }

// WindowerStatus is where the owner of a windows journal answers questions about its state.
func WindowerStatus(bs, job string, gen, pp int) string {
	return fmt.Sprintf("tm.%s.windower.%s.%d.%s", bs, job, gen, PP(pp))
}

// Audit is the subject of one mutating command.
func Audit(bs, verb string) string {
	if bs == "" {
		bs = "_"
	}
	return "tm.audit." + bs + "." + verb
}

// ConfigStream is the key of a business stream's document in ConfigBucket.
func ConfigStream(bs string) string { return "stream." + bs }

// ConfigPolicy is the key of a policy generation's document in ConfigBucket.
func ConfigPolicy(bs, job string, gen int) string {
	return fmt.Sprintf("policy.%s.%s.%d", bs, job, gen)
}

// ConfigEffectPolicy is the key of an effect policy version's document in ConfigBucket.
func ConfigEffectPolicy(bs, name string, version int) string {
	return fmt.Sprintf("effectpolicy.%s.%s.%d", bs, name, version)
}

// ConfigAdapter is the key of an adapter version's document in ConfigBucket.
func ConfigAdapter(name string, version int) string {
	return fmt.Sprintf("adapter.%s.%d", name, version)
}

// activePrefix begins the keys of ConfigBucket that hold no document.
const activePrefix = "active."

// ConfigActive is the key in ConfigBucket of what `apply` last made active for an effect
// type.
func ConfigActive(bs, effectType string) string { return activePrefix + bs + "." + effectType }

// IsConfigActive tells whether a key of ConfigBucket is one of ConfigActive.
func IsConfigActive(key string) bool { return strings.HasPrefix(key, activePrefix) }

// StreamSnapshot is where JetStream is asked for a copy of a stream.
func StreamSnapshot(stream string) string { return "$JS.API.STREAM.SNAPSHOT." + stream }

// StreamRestore is where JetStream is told to make a stream from a copy.
func StreamRestore(stream string) string { return "$JS.API.STREAM.RESTORE." + stream }

package effector

import (
	"path/filepath"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// stage is how metrics and leases name this service.
const stage = "effector"

// partition names one unit: the effects of one key partition of a business stream.
type partition struct {
	stream string
	number int
}

// String is how logs, problems and metrics name a partition: orders/03.
func (p partition) String() string { return p.stream + "/" + subject.PP(p.number) }

func (p partition) journal() string { return subject.EffectsStream(p.stream, p.number) }

func (p partition) subject() string { return subject.Effects(p.stream, p.number) }

// fence is where COMMITs of a job generation's revisions stand.
func (p partition) fence(job string, generation int) string {
	return subject.Commits(p.stream, job, generation, p.number)
}

// jobPrefix is what the fences of all generations of a job begin with.
func (p partition) jobPrefix(job string) string {
	return strings.TrimSuffix(subject.Commits(p.stream, job, 0, 0), "0."+subject.PP(0))
}

func (p partition) revisions(job string, generation int) string {
	return subject.RevisionsOf(p.stream, job, generation, p.number)
}

func (p partition) viewFile(dir string) string {
	return filepath.Join(dir, p.stream, subject.PP(p.number)+".view")
}

// dispatchFile is where the attempts stand that this machine may have sent. It is no cache.
func (p partition) dispatchFile(dir string) string {
	return filepath.Join(dir, p.stream, subject.PP(p.number)+".dispatch")
}

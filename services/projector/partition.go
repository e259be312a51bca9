package projector

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tidemark-mesh/tidemark/pkg/policy"
	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// partition names one unit of acceptance.
type partition struct {
	stream     string
	job        string
	generation int
	number     int // key partition
}

// String is how logs, problems and metrics name a partition: orders/hourly-revenue@14/03.
func (p partition) String() string {
	return fmt.Sprintf("%s/%s/%s", p.stream, policy.PolicyGeneration(p.job, p.generation), subject.PP(p.number))
}

func (p partition) fence() string {
	return subject.Commits(p.stream, p.job, p.generation, p.number)
}

// revisions is the filter that covers every key.
func (p partition) revisions() string {
	return subject.RevisionsOf(p.stream, p.job, p.generation, p.number)
}

// revisionPrefix is what comes before the escaped key in a revision's subject.
func (p partition) revisionPrefix() string { return strings.TrimSuffix(p.revisions(), "*") }

func (p partition) windowsStream() string {
	return subject.WindowsStream(p.stream, p.job, p.generation, p.number)
}

// unit names the partition's lease.
func (p partition) unit() string {
	return fmt.Sprintf("%s.%d.%s", p.job, p.generation, subject.PP(p.number))
}

// viewFile is where the partition's view stands under the service's directory.
func (p partition) viewFile(dir string) string {
	return filepath.Join(dir, p.stream, fmt.Sprintf("%s@%d", p.job, p.generation), subject.PP(p.number)+".view")
}

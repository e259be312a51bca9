package windower

import (
	"fmt"
	"path/filepath"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// partition names one windows journal.
type partition struct {
	stream     string
	job        string
	generation int
	number     int // key partition
}

// String is the name in logs, problems and metrics: <stream>/<job>@<gen>/<pp>.
func (p partition) String() string {
	return fmt.Sprintf("%s/%s@%d/%s", p.stream, p.job, p.generation, subject.PP(p.number))
}

func (p partition) eventsStream() string { return subject.EventsStream(p.stream, p.number) }

func (p partition) windowsStream() string {
	return subject.WindowsStream(p.stream, p.job, p.generation, p.number)
}

func (p partition) windowsSubject() string {
	return subject.Windows(p.stream, p.job, p.generation, p.number)
}

func (p partition) statusSubject() string {
	return subject.WindowerStatus(p.stream, p.job, p.generation, p.number)
}

func (p partition) lease() string {
	return subject.Lease("windower", p.stream, fmt.Sprintf("%s.%d.%s", p.job, p.generation, subject.PP(p.number)))
}

// file is where the checkpoint stands under the service's directory.
func (p partition) file(dir string) string {
	name := fmt.Sprintf("%s.%d.%s.db", subject.Escape(p.job), p.generation, subject.PP(p.number))
	return filepath.Join(dir, subject.Escape(p.stream), name)
}

package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/tidemark-mesh/tidemark/internal/netguard"
	"github.com/tidemark-mesh/tidemark/pkg/policy"
)

// Modes of an endpoint.
const (
	ModeUpsert = "upsert" // the newest revision of a projection is enough
	ModeDelta  = "delta"  // every revision is delivered
)

// Endpoint says where revisions go and how. It is one YAML document.
type Endpoint struct {
	Name        string     `yaml:"endpoint"`
	URL         string     `yaml:"url"`
	PlainHTTP   bool       `yaml:"plainHTTP"` // allow an http:// url
	SecretFiles []string   `yaml:"secretFiles"`
	Stream      string     `yaml:"stream"`
	Job         string     `yaml:"job"`
	Mode        string     `yaml:"mode"`
	Schedule    []Duration `yaml:"schedule"` // wait before the first attempt, the second, …
	Timeout     Duration   `yaml:"timeout"`  // of one attempt, from the name's resolution to the answer's end
	Concurrency int        `yaml:"concurrency"`
	QueueLimit  int        `yaml:"queueLimit"` // deliveries not made; beyond it the feed waits
	Allow       []string   `yaml:"allow"`      // address ranges that may be dialled although they are not public
	Keep        Duration   `yaml:"keep"`       // how long a closed delivery can be looked at and sent again
	Applied     *Applied   `yaml:"applied"`

	allow []netip.Prefix
}

// Applied says how the receiver tells that it applied a delivery.
type Applied struct {
	Within      Duration `yaml:"within"`      // after which a delivery that is only DELIVERED is an alert
	Receipts    bool     `yaml:"receipts"`    // signed receipts at POST /receipts
	SecretFiles []string `yaml:"secretFiles"` // of receipts; default those of the endpoint
	Pull        *Pull    `yaml:"pull"`
}

// Pull says where the receiver's state can be looked at.
type Pull struct {
	URL   string   `yaml:"url"` // holds {projectionId}, or {webhookId}
	Every Duration `yaml:"every"`
}

// Duration is a length of time as documents write it: 5s, 30m, 2h, 7d.
type Duration time.Duration

// UnmarshalYAML reads a duration.
func (d *Duration) UnmarshalYAML(text []byte) error {
	var word string
	if err := yaml.Unmarshal(text, &word); err != nil {
		return err
	}
	read, err := policy.ParseDuration(word)
	if err != nil {
		return err
	}
	*d = Duration(time.Duration(read) * time.Microsecond)
	return nil
}

// published is the schedule that docs/webhooks.md promises.
var published = []time.Duration{
	0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// Bounds of a document.
const (
	defaultTimeout     = 20 * time.Second
	maxTimeout         = 5 * time.Minute
	defaultConcurrency = 8
	maxConcurrency     = 256
	defaultQueue       = 100_000
	maxQueue           = 10_000_000
	defaultKeep        = 7 * 24 * time.Hour
	maxWait            = 30 * 24 * time.Hour
	maxSchedule        = 50
	defaultWithin      = 15 * time.Minute
	defaultEvery       = time.Minute
)

// Load reads the document of an endpoint. Relative paths of secrets start at its directory.
func Load(path string) (*Endpoint, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("endpoint document: %w", err)
	}
	e, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	base := filepath.Dir(path)
	files := [][]string{e.SecretFiles}
	if e.Applied != nil {
		files = append(files, e.Applied.SecretFiles)
	}
	for _, list := range files {
		for i, name := range list {
			if !filepath.IsAbs(name) {
				list[i] = filepath.Join(base, name)
			}
		}
	}
	return e, nil
}

// Parse reads the document of an endpoint, fills in what it leaves out, and answers every
// rule that it breaks.
func Parse(text []byte) (*Endpoint, error) {
	e := &Endpoint{}
	if err := decode(text, e); err != nil {
		return nil, fmt.Errorf("endpoint document: %w", err)
	}
	e.fill()
	if err := e.check(); err != nil {
		return nil, err
	}
	return e, nil
}

// decode reads YAML. The decoder panics on some malformed documents, such as a tag without
// a value; that too is an error of the document.
func decode(text []byte, e *Endpoint) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("it is not readable as YAML; tags (!name) are not used here")
		}
	}()
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.DisallowUnknownField()).Decode(e); err != nil {
		return errors.New(strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	return nil
}

func (e *Endpoint) fill() {
	if e.Mode == "" {
		e.Mode = ModeUpsert
	}
	if e.Schedule == nil {
		for _, d := range published {
			e.Schedule = append(e.Schedule, Duration(d))
		}
	}
	orDefault(&e.Timeout, defaultTimeout)
	orDefault(&e.Keep, defaultKeep)
	if e.Concurrency == 0 {
		e.Concurrency = defaultConcurrency
	}
	if e.QueueLimit == 0 {
		e.QueueLimit = defaultQueue
	}
	if a := e.Applied; a != nil {
		orDefault(&a.Within, defaultWithin)
		if a.SecretFiles == nil {
			a.SecretFiles = slices.Clone(e.SecretFiles)
		}
		if a.Pull != nil {
			orDefault(&a.Pull.Every, defaultEvery)
		}
	}
}

func orDefault(d *Duration, def time.Duration) {
	if *d == 0 {
		*d = Duration(def)
	}
}

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$`)

func (e *Endpoint) check() error {
	var errs []error
	rule := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	rule(nameForm.MatchString(e.Name), "endpoint %q: give it a name of a-z, 0-9 and -, at most 64; it is part of every webhook-id", e.Name)
	rule(e.Stream != "" && e.Job != "", "stream and job say which revisions are sent; both must be set")
	rule(e.Mode == ModeUpsert || e.Mode == ModeDelta, "mode %q: choose upsert (the newest revision is enough) or delta (every revision)", e.Mode)
	rule(len(e.SecretFiles) == 1 || len(e.SecretFiles) == 2, "secretFiles: name one file, or two while a secret is being replaced")
	rule(len(e.Schedule) <= maxSchedule && len(e.Schedule) > 0, "schedule: 1 to %d waits", maxSchedule)
	for _, d := range e.Schedule {
		rule(d >= 0 && time.Duration(d) <= maxWait, "schedule: %s is not between 0 and 30d", time.Duration(d))
	}
	rule(time.Duration(e.Timeout) >= 100*time.Millisecond && time.Duration(e.Timeout) <= maxTimeout, "timeout: between 100ms and 5m")
	rule(e.Concurrency >= 1 && e.Concurrency <= maxConcurrency, "concurrency: between 1 and %d", maxConcurrency)
	rule(e.QueueLimit >= 1 && e.QueueLimit <= maxQueue, "queueLimit: between 1 and %d", maxQueue)
	rule(time.Duration(e.Keep) >= time.Minute, "keep: at least 1m")
	errs = append(errs, e.checkURL("url", e.URL))
	allow, err := netguard.ParseAllow(e.Allow)
	e.allow = allow
	errs = append(errs, err)
	if a := e.Applied; a != nil {
		rule(a.Receipts || a.Pull != nil, "applied: set receipts: true, or pull, or leave applied out")
		rule(time.Duration(a.Within) >= time.Second, "applied.within: at least 1s")
		rule(len(a.SecretFiles) == 1 || len(a.SecretFiles) == 2, "applied.secretFiles: name one file, or two while a secret is being replaced")
		if a.Pull != nil {
			errs = append(errs, e.checkURL("applied.pull.url", a.Pull.URL))
			rule(strings.Contains(a.Pull.URL, "{projectionId}") || strings.Contains(a.Pull.URL, "{webhookId}"), "applied.pull.url: write {projectionId} or {webhookId} where the receiver expects it")
			rule(time.Duration(a.Pull.Every) >= time.Second, "applied.pull.every: at least 1s")
		}
	}
	return errors.Join(errs...)
}

func (e *Endpoint) checkURL(member, text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return fmt.Errorf("%s: not a URL; write one such as https://receiver.example/hooks", member)
	case u.User != nil || u.Fragment != "":
		return fmt.Errorf("%s: leave out user, password and fragment; deliveries prove themselves by their signature", member)
	case u.Scheme == "https", u.Scheme == "http" && e.PlainHTTP:
		return nil
	case u.Scheme == "http":
		return fmt.Errorf("%s: use https; plainHTTP: true allows http inside a closed network", member)
	}
	return fmt.Errorf("%s: %s is no scheme that is spoken here; use https", member, u.Scheme)
}

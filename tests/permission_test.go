package tests

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-mesh/tidemark/pkg/subject"
)

// as answers the server's URL for a user of the permission test.
func (m *mesh) as(user string) string {
	u, err := url.Parse(m.url)
	if err != nil {
		m.t.Fatal(err)
	}
	u.User = url.UserPassword(user, "secret")
	return u.String()
}

// Each service runs as a user who may do everything but write its own journal. It says
// which subject it misses, goes on trying, and after the permission came nothing is lost.
func TestAMissingPermissionIsNamed(t *testing.T) {
	missing := map[string]string{
		"ingest":    subject.Events("clicks", 1),
		"windower":  subject.Windows("clicks", "per-minute", 1, 1),
		"projector": subject.Commits("clicks", "per-minute", 1, 1),
	}
	users := func(deny bool) string {
		var b strings.Builder
		b.WriteString("authorization { users = [\n  {user: admin, password: secret}\n")
		for verb, subj := range missing {
			if !deny {
				subj = "nothing.at.all"
			}
			fmt.Fprintf(&b, "  {user: %s, password: secret, permissions: {publish: {deny: [%q]}}}\n", verb, subj)
		}
		return b.String() + "] }"
	}
	m := newMesh(t, "", users(true))
	plain := m.url
	m.url = m.as("admin")
	m.connected().Close()
	must(t, "apply", "-f", write(t, "clicks.yaml", crashDocuments), "--server", m.url)
	services := map[string]*process{}
	for verb := range missing {
		m.url = plain
		m.url = m.as(verb)
		services[verb] = m.service(verb, verb)
		services[verb].start()
	}
	m.url = plain
	m.url = m.as("admin")
	services["ingest"].says(missing["ingest"])
	services["windower"].says(missing["windower"])
	// The projector has something to write only once there are windows.
	services["projector"].says(missing["projector"])
	for verb, p := range services {
		if text := strings.ToLower(p.log.String()); !strings.Contains(text, "permission") {
			t.Errorf("%s names the subject but not that a permission is missing\n%s", verb, p.log)
		}
		if !p.running() {
			t.Errorf("%s ended: %v\n%s", verb, p.cmd.ProcessState, p.log)
		}
	}
	// The operator gives the permission: the same processes go on.
	m.reconfigure(users(false))
	m.connected().Close()
	for p := range 2 {
		must(t, "send", clicks(t, p, 1_000), "--stream", "clicks", "--source", "web", "--partition", fmt.Sprint(p), "--server", m.url, "--timeout", "40s")
	}
	must(t, "wait", "clicks", "--server", m.url, "--timeout", "1m")
	if r := run(t, "verify", "clicks", "--server", m.url); r.code != 0 {
		t.Errorf("verify ended with %d\n%s%s", r.code, r.out, r.err)
	}
	for verb, p := range services {
		if code, took := p.stop(); code != 0 || took > 20*time.Second {
			t.Errorf("%s ended with %d after %v of SIGTERM", verb, code, took)
		}
	}
}

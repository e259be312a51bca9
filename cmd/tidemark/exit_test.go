package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// Wrong usage says what is wrong and what to write, in no library's words.
func TestWrongUsageSaysWhatToDo(t *testing.T) {
	cases := []struct{ line, want string }{
		{"windws", `unknown command "windws" for "tidemark"; did you mean windows?`},
		{"quarantine lss", "did you mean ls?"},
		{"windows", "write: tidemark windows STREAM"},
		{"windows a b", "write: tidemark windows STREAM"},
		{"lint", "write: tidemark lint FILE…"},
		{"explain orders", `"at", "key" not set; write: tidemark explain STREAM --key KEY --at TIME`},
		{"version now", "`tidemark version` takes no arguments"},
		{"send f --stream a --source b --partition -1", `invalid argument "-1" for "--partition" flag; `},
		{"windows a --timeout soon", `invalid argument "soon" for "--timeout" flag; `},
		{"windows a --nothing", "unknown flag: --nothing; "},
		{"quarantine ls orders --reason value-precission", "choose malformed-json, duplicate-field"},
		{"quarantine discard orders --refused-for late --reason why", "--refused-for"},
		{"get -o xml", "choose table, json, ndjson or yaml"},
	}
	for _, c := range cases {
		_, errOut := tidemark(t, exitUsage, "", strings.Fields(c.line)...)
		contains(t, errOut, c.want)
		for _, jargon := range []string{"arg(s)", "strconv", "time:"} {
			if strings.Contains(errOut, jargon) {
				t.Errorf("%s: %s", c.line, errOut)
			}
		}
	}
}

func TestInterruptedVerbsSaySo(t *testing.T) {
	server := documentServer(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errOut bytes.Buffer
	code := run(ctx, []string{"get", "--server", server}, strings.NewReader(""), &out, &errOut)
	if code == exitOK || errOut.String() != "tidemark: interrupted\n" {
		t.Errorf("exit %d, %q", code, &errOut)
	}
}

func TestPlainKeepsWhatPeopleCanRead(t *testing.T) {
	for text, want := range map[string]string{
		"eu-west":           "eu-west",
		"São Paulo/日本 😀":    "São Paulo/日本 😀",
		"a\x1b[31m\tb\nc":   `a\x1b[31m\tb\nc`,
		"bad\xff\u202etext": `bad\xff\u202etext`,
		"nb\u00a0sp":        `nb\u00a0sp`,
	} {
		if got := plain(text); got != want {
			t.Errorf("plain(%q) is %q, want %q", text, got, want)
		}
	}
}

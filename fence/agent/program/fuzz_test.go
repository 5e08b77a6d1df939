package program

import (
	"regexp"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// FuzzMetadata: whatever a program prints, it is refused or it has the actions
// that a proof needs.
func FuzzMetadata(f *testing.F) {
	f.Add(`<?xml version="1.0" ?><resource-agent name="x"><parameters><parameter name="ip" obsoletes="ipaddr"><getopt mixed="-a"/></parameter></parameters><actions><action name="off"/><action name="status"/><action name="on" automatic="1"/></actions></resource-agent>`)
	f.Add(`<resource-agent/>`)
	f.Add(`<resource-agent><actions><action name="off"></actions>`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMetadata(text)
		if err != nil {
			return
		}
		if m.can("off") != nil || m.can("status") != nil {
			t.Error("accepted without off or status")
		}
		for name := range m.aliases {
			if m.aliases[m.aliases[name]] == "" {
				t.Errorf("%q stands for %q, which is no parameter", name, m.aliases[name])
			}
		}
		m.check(Options{Parameters: map[string]string{"ipadr": "1", "ip": "2"}})
	})
}

// FuzzJudge: Off needs exit code 2 and the word on standard output, with
// nothing said to the contrary.
func FuzzJudge(f *testing.F) {
	for _, out := range []string{"Status: OFF", "Status: ON\nStatus: OFF", "suspended off", "terminated", "off: error", "", "OFF\r\n", "Status: OFF\nIdentity: /rg-on-site/n1", "Identity: off"} {
		for _, code := range []int{0, 1, 2} {
			f.Add(code, out, "warning: on the way")
		}
	}
	word := regexp.MustCompile(`(?i)\b(off|terminated)\b`)
	contrary := regexp.MustCompile(`(?i)\b(on|suspended|paused|unknown|not found|shutting down)\b`)
	f.Fuzz(func(t *testing.T, code int, out, errs string) {
		state, err := judge(result{code: code, out: output{text: out}, errs: output{text: errs}})
		out = withoutIDs(out)
		if (err != nil) != (state == agent.Unclear) {
			t.Errorf("%v with error %v", state, err)
		}
		if state == agent.Off && (code != 2 || !word.MatchString(out) || contrary.MatchString(out)) {
			t.Errorf("exit %d with %q reads off", code, out)
		}
		if state == agent.On && code != 0 {
			t.Errorf("exit %d reads on", code)
		}
	})
}

// withoutIDs leaves out lines that say who the machine is.
func withoutIDs(out string) string {
	var rest []string
	for _, line := range strings.Split(out, "\n") {
		id, ok := strings.CutPrefix(strings.TrimSuffix(line, "\r"), "Identity: ")
		if !ok || id == "" || strings.ContainsAny(id, "\t\f\r ") {
			rest = append(rest, line)
		}
	}
	return strings.Join(rest, "\n")
}

// FuzzDetail: it is bounded, on one line, and without the secret.
func FuzzDetail(f *testing.F) {
	f.Add("login with hunter2 failed", "hunter2", false)
	f.Add("hunter2&x", "hunter2&x", true)
	f.Fuzz(func(t *testing.T, text, password string, cut bool) {
		// What is struck out leaves a word of its own, which a short secret
		// may be part of.
		if len(password) < 4 || strings.TrimSpace(password) != password || strings.ContainsAny(password, "\n\r\x00\v\f") ||
			strings.Contains("exit 1: ***stripped***: … ?", password) || oneLine(password) != password {
			return
		}
		s := parameters{{"passwd", password, secret}}.secrets()
		got := s.detail(result{code: 1, out: output{text: strings.ReplaceAll(text, "*", ""), cut: cut}})
		if len(got) > maxDetail || strings.ContainsAny(got, "\n\r") {
			t.Errorf("detail %q", got)
		}
		if strings.Contains(text, password) && strings.Contains(oneLine(text), password) && strings.Contains(got, password) {
			t.Errorf("detail %q shows %q", got, password)
		}
	})
}

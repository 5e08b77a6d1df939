package program

import (
	"regexp"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
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

// FuzzIdentity: what a program prints of another machine is neither off nor on, and a reading counts as
// held against the node only where it names the node's system UUID, and nothing has it in doubt.
func FuzzIdentity(f *testing.F) {
	const its, swapped, another = "4237e6c2-1111-4222-8333-444444444444", "c2e63742-1111-2242-8333-444444444444", "4237e6c2-1111-4222-8333-555555555555"
	for _, ids := range [][]string{{its}, {swapped}, {another}, {its, another}, {another, its}, {"100", strings.ToUpper(its)}, {its, its}, {strings.ReplaceAll(another, "-", "")}, {"{" + another + "}"}, {"03000200-0400-0500-0006-000700080009"}} {
		f.Add(2, "Status: OFF\nIdentity: "+strings.Join(ids, "\nIdentity: ")+"\n", its, false)
		f.Add(0, "Status: ON\r\nIdentity: "+strings.Join(ids, "\r\nIdentity: ")+"\r\n", its, true)
	}
	f.Add(2, "Status: OFF\nIdentity: "+its, "", false)
	uuid := regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	f.Fuzz(func(t *testing.T, code int, out, node string, doubted bool) {
		m := agent.Machine{Node: "n1", SystemUUID: node}
		if doubted {
			m.Doubts = map[string]agent.Doubt{agent.VarSystemUUID: {}}
		}
		state, checked, err := read(result{code: code, out: output{text: out}}, m)
		own := false
		for _, line := range strings.Split(out, "\n") {
			id, ok := strings.CutPrefix(strings.TrimSuffix(line, "\r"), "Identity: ")
			if !ok || !uuid.MatchString(id) || !uuid.MatchString(node) || !fence.TellsSystem(id) || !fence.TellsSystem(node) {
				continue
			}
			is := strings.EqualFold(id, node) || strings.EqualFold(id, inTheOtherOrder(node))
			if own = own || is; !is && (err == nil || state != agent.Unclear) {
				t.Errorf("%q reads %v for node %s", out, state, node)
			}
		}
		if checked && (!own || doubted || err != nil) {
			t.Errorf("%q was held against node %s", out, node)
		}
		if (err != nil) != (state == agent.Unclear) {
			t.Errorf("%v with error %v", state, err)
		}
	})
}

// inTheOtherOrder is a UUID with the bytes of its first three fields turned round.
func inTheOtherOrder(u string) string {
	return u[6:8] + u[4:6] + u[2:4] + u[0:2] + "-" + u[11:13] + u[9:11] + "-" + u[16:18] + u[14:16] + u[18:]
}

// FuzzOwnParameters: whatever parameter is given to an agent of our own, whichever way: it is refused, or
// a machine's UUID is the node's own, and nothing else of it says otherwise.
func FuzzOwnParameters(f *testing.F) {
	f.Add(uint(0), "uuid", "$(SYSTEM_UUID)", uint(0))
	f.Add(uint(1), "UUID", "none", uint(1))
	f.Add(uint(2), "--uuid", "x", uint(0))
	f.Add(uint(1), "not-found-is-gone", "1", uint(0))
	f.Add(uint(0), "plug", "x$(INSTANCE_ID)", uint(3))
	f.Fuzz(func(t *testing.T, where uint, key, value string, which uint) {
		var o Options
		switch where % 3 {
		case 0:
			o.Parameters = map[string]string{key: value}
		case 1:
			o.NodeParameters = map[string]map[string]string{key: {"n1": value}}
		case 2:
			o.ParameterFiles = map[string]string{key: value}
		}
		name := uuidAgents[which%uint(len(uuidAgents))]
		if len(o.checkOwn(name)) > 0 {
			return
		}
		if plain(key) != "uuid" || where%3 == 2 || value != "none" && value != "$(SYSTEM_UUID)" {
			t.Errorf("%s takes %q: %q of all parameters, and knows no node's machine", name, key, value)
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

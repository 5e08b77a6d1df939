package contract_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
)

// Whatever is on the input, on the command line or in a file of a secret, and whatever the platform
// says of the machine: a state is told, or something done, only for one of the known actions that was
// given, and only with values that were given; and what is printed is plain, without the secret. FILE
// stands for the name of the file.
func FuzzInput(f *testing.F) {
	f.Add("action=status\nplug=7\npassword=hunter2-secret\n", "", "", "running", byte(1))
	f.Add("# no\n\nACTION=off\r\n Port =7\nlogin=x\npassword-file=FILE\ntimeout=9s\nnodename=n\n", "", "hunter2-secret\r\n", "n1", byte(1))
	f.Add("", "-o\nstatus\n--plug=7\n--password\nhunter2-secret\n--role=r", "", "", byte(2))
	f.Add("action=list\npassword=hunter2-secret", "", "", "n1\x1b[2J\nhunter2-secret\u202e\x9b", byte(0))
	f.Add("action=status\nplug=1\npassword=hunter2-secret", "", "", "hunter2-secret is wrong", byte(0))
	f.Add("plug=1\npassword=hunter2-secret\n", "", "", "", byte(1))
	f.Add("action=reboot\nplug=1\npassword=hunter2-secret\nuuid=4237e6c2-1111-4222-8333-444444444444", "", "", "4237e6c2-1111-4222-8333-444444444444", byte(1))
	f.Add("action=monitor\nplug=a b\npassword=x\npassword_file=FILE", "--action", "", "", byte(1))
	file := filepath.Join(f.TempDir(), "secret")
	// The agent sets them.
	f.Setenv("HTTPS_PROXY", "")
	f.Setenv("CONTRACT_TEST_ROLE", "")
	f.Fuzz(func(t *testing.T, stdin, args, secret, says string, state byte) {
		if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		stdin, args = strings.ReplaceAll(stdin, "FILE", file), strings.ReplaceAll(args, "FILE", file)
		o := &outlet{machine: contract.Machine{State: contract.State(state % 3), Name: says, Says: says, UUID: says}}
		var out, errs bytes.Buffer
		p := contract.Program{Name: "agents", Agents: []*contract.Agent{o.agent()}, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Interval: time.Nanosecond}
		words, given := []string{"/usr/sbin/fence_fencepost_outlet"}, strings.Split(stdin, "\n")
		if args != "" {
			words = append(words, strings.Split(args, "\n")...)
			given = words[1:]
		}
		code := p.Run(t.Context(), words)

		// gives tells whether these words may be what was given, by input or as one or two arguments.
		gives := func(names, value string) bool {
			for i, word := range given {
				for name := range strings.FieldsSeq(names) {
					key, v, _ := strings.Cut(strings.ReplaceAll(strings.ToLower(word), "-", "_"), "=")
					is := strings.Trim(strings.TrimSpace(key), "_") == name || name == "action" && word == "-o"
					if is && (strings.EqualFold(strings.TrimSpace(v), strings.ReplaceAll(strings.TrimSpace(value), "-", "_")) || i+1 < len(given) && given[i+1] == value) {
						return true
					}
				}
			}
			return false
		}
		acts := gives("action", "off") || gives("action", "on") || gives("action", "reboot")
		if len(o.sent) > 0 && !acts {
			t.Errorf("%q was sent, and nobody has asked for it", o.sent)
		}
		if code != 0 && code != 1 && code != 2 || code == 2 && (!gives("action", "status") || o.machine.State != contract.Off) {
			t.Errorf("exit %d of a machine that is %v", code, o.machine.State)
		}
		if said := strings.HasPrefix(out.String(), "Status: OFF\n"); said != (code == 2) {
			t.Errorf("exit %d, and %q", code, out.String())
		}
		for name, value := range o.opened {
			names := map[string]string{"plug": "plug port", "username": "username login", "password": "password passwd"}[name]
			if names == "" {
				names = name
			}
			if value != "" && !gives(names, value) && value != strings.TrimRight(secret, "\r\n") && (name != "timeout" || value != "60") {
				t.Errorf("opened with %s=%q, which nobody has given", name, value)
			}
		}
		if (code == 1) != (errs.Len() > 0) || code == 1 && strings.Contains(errs.String(), "a fault of this program") {
			t.Errorf("exit %d, and %q", code, errs.String())
		}
		if !slices.Contains(given, "metadata") && !strings.Contains(out.String(), "<resource-agent") {
			for _, text := range []string{out.String(), errs.String()} {
				if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }) {
					t.Errorf("a terminal acts on %q", text)
				}
			}
		}
		if password := o.opened["password"]; len(password) > 7 && strings.Contains(errs.String(), password) && !strings.Contains("fence_fencepost_outlet: machine is, which is neither on nor off", password) {
			t.Errorf("%q shows the secret %q", errs.String(), password)
		}
	})
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

// root is the repository, and built the program that was built from it.
var (
	root  string
	built *program
)

func TestMain(m *testing.M) {
	code, err := prepare(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func prepare(m *testing.M) (code int, err error) {
	if root, err = repository(); err != nil {
		return 1, err
	}
	if built, err = buildProgram(context.Background(), root); err != nil {
		return 1, err
	}
	defer built.remove()
	return m.Run(), nil
}

// folders are where the pages for people are.
var folders = []string{".", "docs", "sanity", "deploy"}

func pages(t *testing.T) (all []*page) {
	t.Helper()
	for _, folder := range folders {
		depth := []string{"*.md"}
		if folder != "." {
			depth = append(depth, "*/*.md", "*/*/*.md")
		}
		for _, pattern := range depth {
			found, err := filepath.Glob(filepath.Join(root, folder, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				name, err := filepath.Rel(root, f)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, mustRead(t, name))
			}
		}
	}
	for _, want := range []string{"README.md", "SECURITY.md", "docs/use/runbook.md", "docs/use/evidence.md", "docs/use/upgrade.md", "docs/vendors/embed.md", configurationPage, flagsPage} {
		if !slices.ContainsFunc(all, func(p *page) bool { return p.path == want }) {
			t.Fatalf("%s is not there", want)
		}
	}
	return all
}

func mustRead(t *testing.T, name string) *page {
	t.Helper()
	p, err := readPage(root, name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhatIsWrittenByMakeDocsIsUpToDate(t *testing.T) {
	fields, err := configurationFields(root)
	if err != nil {
		t.Fatal(err)
	}
	now := mustRead(t, configurationPage).text
	want, err := tool.Between([]byte(now), "make docs", fields)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != now {
		t.Errorf("%s is not what fence/config says: run make docs", configurationPage)
	}
	flags, err := flagsText(t.Context(), built)
	if err != nil {
		t.Fatal(err)
	}
	if mustRead(t, flagsPage).text != string(flags) {
		t.Errorf("%s is not what the program says: run make docs", flagsPage)
	}
	if mustRead(t, profilesPage).text != profilesText() {
		t.Errorf("%s is not what deploy/profile says: run make docs", profilesPage)
	}
}

func TestThePageOfFlagsNamesEveryFlagUnderItsCommand(t *testing.T) {
	commands, err := built.subcommands(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	flags, err := flagsText(t.Context(), built)
	if err != nil {
		t.Fatal(err)
	}
	p, count := &page{text: string(flags)}, 0
	for _, c := range commands {
		section, _, _ := strings.Cut(p.section(c.name()), "\n#") // without its subcommands
		for flag := range c.flags {
			if named := regexp.MustCompile(`(?m)(^ *|[ ` + "`" + `])--?` + flag + `\b`); !named.MatchString(section) {
				t.Errorf("the section of %s does not name -%s", c.name(), flag)
			}
			count++
		}
	}
	if count < 150 {
		t.Errorf("only %d flags found", count)
	}
}

func TestEveryCommandOnEveryPageExistsWithItsFlags(t *testing.T) {
	known, err := built.subcommands(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, p := range pages(t) {
		if p.path == flagsPage {
			continue // the program's own words
		}
		for _, c := range p.commands() {
			count++
			fault := ""
			if c.make {
				fault = wrongTarget(c.words, string(makefile))
			} else {
				fault = wrongCommand(c.words, known)
			}
			if fault != "" {
				t.Errorf("%s:%d: %s: %s", p.path, c.line, strings.Join(c.words, " "), fault)
			}
		}
	}
	if count < 60 {
		t.Errorf("only %d commands were found on all pages", count)
	}
}

func wrongTarget(words []string, makefile string) string {
	for _, w := range words {
		if strings.Contains(w, "=") || strings.HasPrefix(w, "-") {
			continue
		}
		if !strings.Contains(makefile, "\n"+w+":") {
			return "the Makefile has no target " + w
		}
	}
	return ""
}

// wrongCommand holds a command against the program's subcommands and flags.
func wrongCommand(words []string, known []*subcommand) string {
	if len(words) == 0 || placeholder(words[0]) || words[0] == "help" || words[0] == "--help" || words[0] == "--version" {
		return ""
	}
	if strings.Contains(words[0], "|") || len(words) > 1 && strings.Contains(words[1], "|") {
		return wrongAlternatives(words, known)
	}
	c := find(known, words[:1])
	if c == nil {
		return "csi-fencepost has no subcommand " + words[0]
	}
	rest := words[1:]
	ownFlag := len(c.flags) > 0 && len(rest) > 0 && strings.HasPrefix(rest[0], "-") // as sanity has, beside sanity writer
	ownWord := len(c.flags) > 0 && find(known, words[:min(2, len(words))]) == nil   // as release has, beside release withdraw
	if len(c.inner) > 0 && len(rest) > 0 && !placeholder(rest[0]) && rest[0] != "--help" && !ownFlag && !ownWord {
		if c = find(known, words[:2]); c == nil {
			return "csi-fencepost " + words[0] + " has no subcommand " + words[1]
		}
		rest = rest[1:]
	}
	return wrongFlags(c, rest)
}

// wrongAlternatives takes fence off|on NODE apart.
func wrongAlternatives(words []string, known []*subcommand) string {
	at := 0
	if !strings.Contains(words[0], "|") {
		at = 1
	}
	for _, one := range strings.Split(words[at], "|") {
		each := slices.Clone(words)
		each[at] = one
		if fault := wrongCommand(each, known); fault != "" {
			return fault
		}
	}
	return ""
}

func wrongFlags(c *subcommand, words []string) string {
	for i := 0; i < len(words); i++ {
		w := words[i]
		if !strings.HasPrefix(w, "-") || w == "-" {
			continue
		}
		if w == "--" {
			return ""
		}
		name, _, given := strings.Cut(strings.TrimLeft(w, "-"), "=")
		takes, there := c.flags[name]
		switch {
		case name == "help" || name == "h":
		case !there:
			return fmt.Sprintf("csi-fencepost %s has no flag %s", c.name(), w)
		case takes && !given:
			if i++; i == len(words) {
				return "flag " + w + " lacks its value"
			}
		}
	}
	return ""
}

func find(known []*subcommand, words []string) *subcommand {
	for _, c := range known {
		if c.name() == strings.Join(words, " ") {
			return c
		}
	}
	return nil
}

// placeholder: a word that stands for others.
func placeholder(word string) bool {
	return word == "" || word == "…" || word == "..." || word == strings.ToUpper(word) && word != strings.ToLower(word)
}

// A check that takes everything would find nothing.
func TestTheCheckOfCommandsFindsWhatIsWrong(t *testing.T) {
	known, err := built.subcommands(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line, right := range map[string]bool{
		"csi-fencepost explain pod db-0 -n shop -w":                                         true,
		"csi-fencepost fence confirm n1 --reason 'a b' --yes":                               true,
		"csi-fencepost fence status|test n1 --config c":                                     true,
		"csi-fencepost run --csi-address=/a --listen /b -v=2":                               true,
		"kubectl fencepost explain pv pv-1 | less":                                          true,
		"csi-fencepost explane pod db-0":                                                    false,
		"csi-fencepost fence confim n1":                                                     false,
		"csi-fencepost fence off|of n1":                                                     false,
		"csi-fencepost fence confirm n1 --raeson x":                                         false,
		"csi-fencepost release pv x --node":                                                 false,
		"echo x && csi-fencepost explain pv x --observed 3s":                                false,
		"csi-fencepost run --worker-threads=100 # which is external-attacher's, --listen=x": false,
	} {
		found := commandsOf(1, line)
		if len(found) != 1 {
			t.Errorf("%s: %d commands found", line, len(found))
			continue
		}
		if fault := wrongCommand(found[0].words, known); (fault == "") != right {
			t.Errorf("%s: %q", line, fault)
		}
	}
	if wrongTarget([]string{"tset"}, "\ntest: unit\n") == "" || wrongTarget([]string{"demo", "STORY=x"}, "\ndemo:\n") != "" {
		t.Error("make targets are not told apart")
	}
}

func TestTheCodeForVendorsIsCompiled(t *testing.T) {
	compiled := oneLine(read(t, "sanity/docs/vendors_test.go"))
	count := 0
	for _, b := range mustRead(t, "docs/vendors/embed.md").blocks {
		if b.language != "go" {
			continue
		}
		count++
		if !strings.Contains(compiled, oneLine(b.text)) {
			t.Errorf("docs/vendors/embed.md:%d: sanity/docs/vendors_test.go does not have this code", b.line)
		}
	}
	if count < 4 {
		t.Errorf("only %d blocks of Go were found", count)
	}
}

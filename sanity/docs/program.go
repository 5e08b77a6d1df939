package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A program is the real csi-fencepost, built for this.
type program struct{ folder string }

func buildProgram(ctx context.Context, root string) (*program, error) {
	folder, err := os.MkdirTemp("", "csi-fencepost-docs")
	if err != nil {
		return nil, err
	}
	p := &program{folder}
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-o", p.path(), "./cmd/csi-fencepost")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		p.remove()
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return p, nil
}

func (p *program) path() string { return filepath.Join(p.folder, "csi-fencepost") }
func (p *program) remove()      { os.RemoveAll(p.folder) }

// help is what a subcommand says of itself.
func (p *program) help(ctx context.Context, words ...string) (string, error) {
	cmd := exec.CommandContext(ctx, p.path(), append(words, "--help")...)
	cmd.Env = []string{"HOME=/nonexistent", "PATH=/usr/bin:/bin"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("csi-fencepost %s --help: %w: %s", strings.Join(words, " "), err, stderr.String())
	}
	return string(out), nil
}

// A subcommand has either flags or subcommands of its own.
type subcommand struct {
	words []string // fence, confirm
	help  string
	// flags by name, without dashes; true: a value follows.
	flags map[string]bool
	inner []string
}

func (c *subcommand) name() string { return strings.Join(c.words, " ") }

var listed = regexp.MustCompile(`(?m)^  ([a-z]+) +\S`)

// subcommands are all that the program has, in the order of its help, the inner
// ones behind theirs.
func (p *program) subcommands(ctx context.Context) ([]*subcommand, error) {
	text, err := p.help(ctx)
	if err != nil {
		return nil, err
	}
	var all []*subcommand
	for _, m := range listed.FindAllStringSubmatch(text, -1) {
		if m[1] == "help" {
			continue
		}
		outer, err := p.subcommand(ctx, m[1])
		if err != nil {
			return nil, err
		}
		all = append(all, outer)
		for _, name := range innerNames(outer.name(), outer.help) {
			inner, err := p.subcommand(ctx, outer.name(), name)
			if err != nil || inner.help == outer.help {
				continue // a word that is not a subcommand, as the pv of explain pv
			}
			outer.inner = append(outer.inner, name)
			all = append(all, inner)
		}
	}
	if len(all) < 5 {
		return nil, errors.New("the help lists hardly any subcommand:\n" + text)
	}
	return all, nil
}

func innerNames(outer, help string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^csi-fencepost `+outer+` ([a-z]+)\b`).FindAllStringSubmatch(help, -1) {
		if !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}

func (p *program) subcommand(ctx context.Context, words ...string) (*subcommand, error) {
	text, err := p.help(ctx, words...)
	if err != nil {
		return nil, err
	}
	return &subcommand{words: words, help: text, flags: parseFlags(text)}, nil
}

var (
	flagLine  = regexp.MustCompile(`^  (?:    |-([a-zA-Z]), )?--?([a-zA-Z][a-zA-Z0-9-]*)(?: ([a-zA-Z][^ ]*))?(?:  |$|\t)`)
	shortLine = regexp.MustCompile(`^  -([a-zA-Z])(?: ([a-zA-Z][^ ]*))?\t`)
)

// parseFlags reads the flags out of a help, as pflag and flag print them.
func parseFlags(help string) map[string]bool {
	flags := map[string]bool{}
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		if m := flagLine.FindStringSubmatch(line); m != nil {
			flags[m[2]] = m[3] != "" && !strings.Contains(m[3], "[=") // its value may be left out
			if m[1] != "" {
				flags[m[1]] = flags[m[2]]
			}
		} else if m := shortLine.FindStringSubmatch(line); m != nil {
			flags[m[1]] = m[2] != ""
		}
	}
	return flags
}

// A helpPart is one flag of a help with what is said of it, or a line that is no flag's (flag is
// empty then).
type helpPart struct{ flag, text string }

// said is the part without the columns that a help puts it in.
func (p helpPart) said() string { return strings.Join(strings.Fields(p.text), " ") }

// helpParts takes a help apart. What follows a flag up to the next flag or empty line is the flag's.
func helpParts(help string) (parts []helpPart) {
	flag := ""
	for line := range strings.Lines(help) {
		switch m := anyFlag.FindStringSubmatch(line); {
		case m != nil:
			flag = m[1]
			parts = append(parts, helpPart{flag, line})
		case flag != "" && strings.TrimSpace(line) != "":
			parts[len(parts)-1].text += line
		default:
			flag = ""
			parts = append(parts, helpPart{"", line})
		}
	}
	return parts
}

var anyFlag = regexp.MustCompile(`^ {2}(?: {4})?((?:-[a-zA-Z], )?--?[a-zA-Z][a-zA-Z0-9-]*)`)

// flagsText is docs/use/flags.md. A flag of which an earlier command says the same, word for word,
// is only named, with a link to that command; one that is required is always shown.
func flagsText(ctx context.Context, p *program) ([]byte, error) {
	commands, err := p.subcommands(ctx)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("# Commands and flags\n\nWritten by `make docs` from the program's own help. As a kubectl plugin, named `kubectl-fencepost`, the same program is `kubectl fencepost`. What the fields of the configuration file mean: [configure.md](configure.md).\n")
	first := map[string]string{} // what is said of a flag, and which command says it first
	for _, c := range commands {
		var own strings.Builder
		var earlier []string           // commands
		named := map[string][]string{} // flags, by the earlier command
		for _, part := range helpParts(strings.ReplaceAll(c.help, "\t", "    ")) {
			of, seen := first[part.said()]
			if part.flag == "" || !seen || strings.HasSuffix(part.said(), "Required.") {
				own.WriteString(part.text)
				if part.flag != "" && !seen {
					first[part.said()] = c.name()
				}
				continue
			}
			if named[of] == nil {
				earlier = append(earlier, of)
			}
			named[of] = append(named[of], "`"+strings.ReplaceAll(part.flag, ", ", "`, `")+"`")
		}
		text := strings.TrimRight(strings.TrimSuffix(strings.TrimRight(own.String(), "\n "), "\nFlags:"), "\n ")
		fmt.Fprintf(&b, "\n%s %s\n\n```text\n%s\n```\n", strings.Repeat("#", 1+len(c.words)), c.name(), text)
		for _, of := range earlier {
			fmt.Fprintf(&b, "\nAs in [%s](#%s): %s.\n", of, slug(of), strings.Join(named[of], ", "))
		}
	}
	return b.Bytes(), nil
}

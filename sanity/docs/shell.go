package main

import (
	"regexp"
	"strings"
)

// A typed is a command of this project as a page shows it.
type typed struct {
	line  int
	words []string // without csi-fencepost, kubectl fencepost or make
	make  bool
}

var (
	inlineCode = regexp.MustCompile("`([^`]+)`")
	shellLike  = map[string]bool{"": true, "sh": true, "shell": true, "bash": true, "console": true}
)

// commands are what a page tells a person to type.
func (p *page) commands() (all []typed) {
	for _, b := range p.blocks {
		if !shellLike[b.language] {
			continue
		}
		text := strings.ReplaceAll(b.text, "\\\n", " ")
		for i, l := range strings.Split(text, "\n") {
			all = append(all, commandsOf(b.line+i, l)...)
		}
	}
	for _, l := range p.prose {
		for _, m := range inlineCode.FindAllStringSubmatch(l.text, -1) {
			all = append(all, commandsOf(l.number, m[1])...)
		}
	}
	return all
}

// commandsOf are those in one line of a shell.
func commandsOf(number int, text string) (all []typed) {
	for _, words := range splitShell(text) {
		for len(words) > 0 && (words[0] == "$" || words[0] == "sudo" || words[0] == "nice" || assignment.MatchString(words[0])) {
			words = words[1:]
		}
		switch {
		case len(words) == 0, words[0] == "cmd/csi-fencepost": // a folder of the sources
		case words[0] == "csi-fencepost" || strings.HasSuffix(words[0], "/csi-fencepost"):
			all = append(all, typed{number, words[1:], false})
		case words[0] == "kubectl" && len(words) > 1 && words[1] == "fencepost":
			all = append(all, typed{number, words[2:], false})
		case words[0] == "make":
			all = append(all, typed{number, words[1:], true})
		}
	}
	return all
}

var assignment = regexp.MustCompile(`^[A-Z_]+=`)

// splitShell takes a line apart into commands and words, as far as the pages go:
// quotes, comments, pipes, lists and redirections; no substitution.
func splitShell(text string) (commands [][]string) {
	var words []string
	var word strings.Builder
	var quote rune
	inWord := false
	end := func() {
		if inWord {
			words = append(words, word.String())
			word.Reset()
			inWord = false
		}
	}
	next := func() {
		end()
		if len(words) > 0 {
			commands = append(commands, words)
			words = nil
		}
	}
	runes := []rune(text)
	for i, r := range runes {
		alone := (i == 0 || runes[i-1] == ' ') && (i+1 == len(runes) || runes[i+1] == ' ')
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ' || r == '\t':
			end()
		case r == '#' && !inWord:
			next()
			return commands
		case r == ';', r == '&' && !inWord, r == '|' && alone:
			next()
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	next()
	return commands
}

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// readSurvivors reads the list of mutants that may survive: for each its key and
// the reason. An entry is the file and function, the line before and after, and
// the reason, up to an empty line; a # at the beginning of a line is a comment.
//
//	fence/message.go Clip
//	- if len(s) <= most {
//	+ if len(s) < most {
//	A text of exactly that length is cut and says the same.
func readSurvivors(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	var entry []string
	for n, line := range append(strings.Split(string(text), "\n"), "") {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "#"):
			continue
		case line != "":
			entry = append(entry, line)
			continue
		case len(entry) == 0:
			continue
		}
		if len(entry) < 4 || !strings.HasPrefix(entry[1], "- ") || !strings.HasPrefix(entry[2], "+ ") {
			return nil, fmt.Errorf("%s:%d: an entry is four lines or more: file and function, - the line, + the line as mutated, and the reason", path, n)
		}
		key := strings.Join(entry[:3], "\n")
		if reasons[key] != "" {
			return nil, fmt.Errorf("%s:%d: %s is listed twice", path, n, entry[0])
		}
		reasons[key] = strings.Join(entry[3:], " ")
		entry = nil
	}
	return reasons, nil
}

// compare says which survivors have no reason, and which reasons no survivor,
// among the files of the packages that were mutated whole.
func compare(survivors []outcome, reasons map[string]string, whole []string) (faults []string) {
	left := map[string]bool{}
	for _, o := range survivors {
		if reasons[o.key()] == "" && !left[o.key()] {
			faults = append(faults, fmt.Sprintf("no test notices, and %s does not say why that may be: %s", listName, o.mutant))
		}
		left[o.key()] = true
	}
	var stale []string
	for key := range reasons {
		if file, _, _ := strings.Cut(key, " "); !left[key] && slices.Contains(whole, folderOf(file)) {
			stale = append(stale, fmt.Sprintf("%s lists what does not survive any more; take it out: %s", listName, strings.ReplaceAll(key, "\n", "\n\t")))
		}
	}
	slices.Sort(stale)
	return append(faults, stale...)
}

func folderOf(file string) string { return file[:max(strings.LastIndex(file, "/"), 0)] }

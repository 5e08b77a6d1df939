package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// readSurvivors reads the list of mutants that may survive: for each its key and
// the reason. An entry is the package and function, the mutation, and the reason, up
// to an empty line; a # at the beginning of a line is a comment. Where the same
// mutation of a function is there more than once, the second ends in #2.
//
//	fence Clip
//	conditionals boundary: len(s) <= most
//	A text of exactly that length is cut and says the same.
//
// Several mutations of a function may have one reason.
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
		function, rest := entry[0], entry[1:]
		last := slices.IndexFunc(rest, func(line string) bool { return !isMutation(line) })
		if last < 1 || strings.Count(function, " ") != 1 {
			return nil, fmt.Errorf("%s:%d: an entry is three lines or more: package and function, the mutation, and the reason", path, n)
		}
		for _, m := range rest[:last] {
			key := function + "\n" + m
			if reasons[key] != "" {
				return nil, fmt.Errorf("%s:%d: %s, %s, is listed twice", path, n, function, m)
			}
			reasons[key] = strings.Join(rest[last:], " ")
		}
		entry = nil
	}
	return reasons, nil
}

// isMutation tells whether a line of an entry names an operator, and of what.
func isMutation(line string) bool {
	operator, of, _ := strings.Cut(line, ": ")
	return of != "" && slices.Contains(operators(), operator)
}

// compare says which survivors have no reason, and which reasons no survivor,
// among the packages that were mutated whole.
func compare(survivors []outcome, reasons map[string]string, whole []string) (faults []string) {
	left := map[string]bool{}
	for _, o := range survivors {
		if reasons[o.key()] == "" {
			faults = append(faults, fmt.Sprintf("no test notices, and %s does not say why that may be: %s", listName, o.mutant))
		}
		left[o.key()] = true
	}
	var stale []string
	for key := range reasons {
		if folder, _, _ := strings.Cut(key, " "); !left[key] && slices.Contains(whole, folder) {
			stale = append(stale, fmt.Sprintf("%s lists what does not survive any more; take it out: %s", listName, strings.ReplaceAll(key, "\n", "\n\t")))
		}
	}
	slices.Sort(stale)
	return append(faults, stale...)
}

func folderOf(file string) string { return file[:max(strings.LastIndex(file, "/"), 0)] }

package model

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

//go:embed transitions.tsv
var table string

// Transition is a row of transitions.tsv: an inline or a label of the model, and
// the function that does it.
type Transition struct {
	Name string
	// Package, by its folder, and Function, as Go prints it; Package "-": it is not
	// the product's, and Function says whose.
	Package, Function string
	Note              string
}

// Transitions reads transitions.tsv. An error names the line.
func Transitions() ([]Transition, error) {
	var all []Transition
	for number, line := range strings.Split(strings.TrimSpace(table), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 4 || slices.Contains(fields[:3], "") {
			return nil, fmt.Errorf("transitions.tsv:%d: %d fields, want name, package, function, note: %q", number+1, len(fields), line)
		}
		all = append(all, Transition{fields[0], fields[1], fields[2], fields[3]})
	}
	return all, nil
}

var (
	inlines = regexp.MustCompile(`(?m)^inline (\w+)\(`)
	labels  = regexp.MustCompile(`(?m)^(\w+):`)
)

// named are the inlines of a model, and the labels of its Replica.
func named(source string) []string {
	var names []string
	for _, m := range inlines.FindAllStringSubmatch(source, -1) {
		names = append(names, m[1])
	}
	_, replica, _ := strings.Cut(source, "proctype Replica(")
	replica, _, _ = strings.Cut(replica, "\n}\n")
	for _, m := range labels.FindAllStringSubmatch(replica, -1) {
		names = append(names, m[1])
	}
	return names
}

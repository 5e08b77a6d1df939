package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// every is an error that names each package of the module that has tests, is in none of the
// go tests, and does not match but. A package that falls out of a command's pattern would
// else be taken for tested.
func every(ctx context.Context, groups [][]string, but string) error {
	leaveOut, err := regexp.Compile(but)
	if err != nil {
		return fmt.Errorf("-but: %w", err)
	}
	all, err := list(ctx, []string{"-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", "./..."})
	if err != nil {
		return err
	}
	var tested []string
	for _, words := range groups {
		if patterns := packagesOf(words); len(patterns) > 0 {
			in, err := list(ctx, patterns)
			if err != nil {
				return err
			}
			tested = append(tested, in...)
		}
	}
	missing := slices.DeleteFunc(all, func(pkg string) bool {
		return slices.Contains(tested, pkg) || but != "" && leaveOut.MatchString(pkg)
	})
	if len(missing) > 0 {
		return fmt.Errorf("no go test has these packages, which have tests: %s", strings.Join(missing, " "))
	}
	return nil
}

// packagesOf are the words for go test that name packages: all others are flags, or their
// values.
func packagesOf(words []string) (patterns []string) {
	for _, word := range words {
		if strings.HasPrefix(word, "./") || strings.HasPrefix(word, modulePath) {
			patterns = append(patterns, word)
		}
	}
	return patterns
}

func list(ctx context.Context, words []string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", append([]string{"list"}, words...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", strings.Join(words, " "), err)
	}
	return strings.Fields(string(out)), nil
}

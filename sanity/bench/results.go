package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// A result is what one section measured, and where.
type result struct {
	Section string
	// Command measures it again.
	Command string
	When    time.Time
	Took    string
	// Machine it was measured on, Load its load average before and after, Versions
	// of what was measured.
	Machine, Load string
	Versions      []string
	// Rows have a cell for each of columns.
	Rows  [][]string
	Notes []string
	Goals []goal `json:",omitempty"`
}

// readResults reads what was measured so far; no file: nothing.
func readResults(file string) ([]result, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []result
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, r := range all {
		for _, row := range r.Rows {
			if len(row) != len(columns) {
				return nil, fmt.Errorf("%s: a row of section %s has %d cells, there are %d columns: %q", file, r.Section, len(row), len(columns), row)
			}
		}
	}
	return all, nil
}

func writeResults(file string, all []result) error {
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// merged has the newer result of each section, in the order of the sections. What
// is no section any more is left out.
func merged(old, now []result) []result {
	var all []result
	for _, s := range sections {
		for _, from := range [][]result{now, old} {
			if i := slices.IndexFunc(from, func(r result) bool { return r.Section == s.name }); i >= 0 {
				all = append(all, from[i])
				break
			}
		}
	}
	return all
}

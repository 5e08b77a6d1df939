// Package result is what one part of the case for safety says when it has run:
// the simulation, the model, the mutants, the fuzzing, the failover, the real
// nodes, the catalogue. Each part writes one file; the command sanity/prove reads them all
// and prints the case. No figure of the documentation comes from anywhere else.
package result

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Result is what one part found.
type Result struct {
	// Part names it: simulation, model, mutants, fuzzing, failover, real-nodes, catalogue.
	Part string `json:"part"`
	// Command repeats it, from the top of the repository.
	Command string `json:"command"`
	// Began is when it began, Seconds how long it took.
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	// Figures are what was counted, in the order in which a person should read them.
	Figures []Figure `json:"figures"`
	// Failures say what broke a promise, one line each. Empty: none did.
	Failures []string `json:"failures,omitempty"`
	// Left says what was not attacked, and why.
	Left []string `json:"left,omitempty"`
}

// Figure is one count or time.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Unit is what is counted: "schedules", "states", "s".
	Unit string `json:"unit,omitempty"`
}

// Add appends a figure.
func (r *Result) Add(name string, value float64, unit string) {
	r.Figures = append(r.Figures, Figure{Name: name, Value: value, Unit: unit})
}

// Write puts the result into a file, and the folders above it there.
func (r Result) Write(path string) error {
	if r.Part == "" || r.Command == "" || len(r.Figures) == 0 {
		return fmt.Errorf("the result for %s lacks its part, its command or its figures", path)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Read reads what Write wrote. An unknown field is an error: it would be a figure
// that nobody prints.
func Read(path string) (Result, error) {
	file, err := os.Open(path)
	if err != nil {
		return Result{}, err
	}
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	var r Result
	if err := decoder.Decode(&r); err != nil {
		return Result{}, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

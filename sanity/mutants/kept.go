package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// kept is what became of the mutants of one target, in this run or an earlier one.
type kept struct {
	// Sources is the SHA-256 of what the target and its tests are made of.
	Sources string
	When    time.Time
	// Fates says how many came to what.
	Fates map[fate]int
	// Survivors are those that no test noticed.
	Survivors []outcome
	// Reused tells that it was not run now.
	Reused bool `json:"-"`

	// tried is each of them; an earlier run's are not kept.
	tried []outcome
}

// count makes what is kept of outcomes.
func count(outcomes []outcome) *kept {
	k := &kept{Fates: map[fate]int{}, tried: outcomes}
	for _, o := range outcomes {
		k.Fates[o.Fate]++
		if o.Fate == survived {
			k.Survivors = append(k.Survivors, o)
		}
	}
	return k
}

// compiled are the mutants that could be run at all.
func (k *kept) compiled() int { return k.Fates[killed] + k.Fates[endless] + k.Fates[survived] }

// keptFile is beside the result, one for each target.
func keptFile(result string, t target) string {
	return filepath.Join(filepath.Dir(result), "mutants-"+strings.ReplaceAll(t.Folder, "/", "-")+".json")
}

// readKept reads an earlier run of the same sources; nil: there is none that can be
// read.
func readKept(file, sources string) *kept {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var k kept
	if json.Unmarshal(text, &k) != nil || k.Sources != sources {
		return nil
	}
	if slices.ContainsFunc(k.Survivors, func(o outcome) bool { return o.Of == "" }) {
		return nil // of a time when mutants had no names
	}
	return &k
}

func (k *kept) write(file string) error {
	text, err := json.MarshalIndent(k, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// digest of all files of the copy, before anything is changed in it, and of which
// tests are run.
func (c *scratch) digest() (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%+v\n", c.target)
	err := filepath.WalkDir(c.folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(c.folder, path)
		fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

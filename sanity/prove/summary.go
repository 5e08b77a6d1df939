package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/sanity/prove/result"
	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

// proofPage is for people; between its marks is what summary says.
const proofPage = "docs/proof.md"

// writeSummary puts what the kept results say into the page for people.
func writeSummary(page, kept string) error {
	text, err := summary(kept)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	written, err := tool.Between(old, "make prove", text)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, written, 0o644)
}

// summary is a row for each part: the figures that it counts first of all, how many
// promises it saw broken, and when. A part that has not been run yet says so.
func summary(kept string) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("| part | what was counted | failures | measured |\n|---|---|---|---|\n")
	for _, p := range parts {
		r, err := result.Read(filepath.Join(kept, p.name+".json"))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			fmt.Fprintf(&out, "| %s | not run yet | | |\n", p.name)
			continue
		case err != nil:
			return nil, err
		}
		failures := "0"
		if n := len(r.Failures); n > 0 {
			failures = fmt.Sprintf("**%d: IT DOES NOT HOLD**", n)
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", p.name, strings.Join(p.counted(r), "; "), failures, r.Began.Format("2006-01-02"))
	}
	return out.Bytes(), nil
}

// counted are the figures of a result that the part counts first of all, the number before
// the name. Of a figure that is of several kinds the kind stays in front.
func (p part) counted(r result.Result) (all []string) {
	for _, f := range r.Figures {
		for _, name := range p.counts {
			if strings.HasPrefix(f.Name, name) {
				kind, what, found := strings.Cut(f.Name, ": ")
				if !found {
					kind, what = "", f.Name
				} else {
					kind += ": "
				}
				all = append(all, cell(kind+figure(result.Figure{Value: f.Value})+" "+what))
			}
		}
	}
	return all
}

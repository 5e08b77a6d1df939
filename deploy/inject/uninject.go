package inject

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/csi-fencepost/csi-fencepost/deploy/inject/splice"
)

// Uninject takes out what Inject has put in: Uninject(Inject(x)) is x. Where the
// comments that mark the changes are lost, it works by the annotation on the
// workload, and restores the meaning, not the bytes.
func Uninject(files []File) (*Result, error) {
	r := &Result{}
	var left []File
	for _, f := range files {
		text, changed, err := splice.Undo(f.Text)
		if err != nil {
			return nil, locate(f.Name, err, "")
		}
		if changed && len(bytes.TrimSpace(text)) == 0 {
			r.Removed = append(r.Removed, f.Name)
			r.say(f.Name, "taken out as a whole: all of it was put in")
			continue
		}
		if changed {
			r.say(f.Name, "taken out, by its marks")
		}
		left = append(left, File{f.Name, text})
	}
	left, err := r.restoreUnmarked(left)
	if err != nil {
		return nil, err
	}
	r.compare(files, left)
	return r, r.sayLeft(left)
}

// sayLeft names each csi-fencepost that is in the files all the same: not by inject, so that what
// the attacher had before is not known.
func (r *Result) sayLeft(files []File) error {
	if !slices.ContainsFunc(files, func(f File) bool { return bytes.Contains(f.Text, []byte("listen")) }) {
		return nil
	}
	_, found, err := readFiles(files)
	if err != nil {
		return err
	}
	for i := range found {
		m := &found[i]
		if !isWorkload(m.APIVersion, m.Kind) {
			continue
		}
		o, err := m.decode()
		if err != nil {
			continue // what cannot be read was left alone, too
		}
		w, err := FromObject(o)
		if err != nil {
			continue
		}
		for _, c := range containersOf(&w.Template.Spec) {
			if isSidecar(c) {
				r.say(m.where, "container %s of %s is csi-fencepost, and stays: it was not put in by inject into these manifests, but by values of a chart, a policy, or hand, and goes the same way: %s", c.Name, w.name(), takeOut)
			}
		}
	}
	return nil
}

// takeOut is where each way out stands.
const takeOut = "docs/use/upgrade.md#removing-it"

func (r *Result) say(where, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{where, fmt.Sprintf(format, args...)})
}

// compare fills Files and Changed in.
func (r *Result) compare(before, after []File) {
	r.Files = after
	for _, f := range after {
		if i := slices.IndexFunc(before, func(b File) bool { return b.Name == f.Name }); i < 0 || !bytes.Equal(before[i].Text, f.Text) {
			r.Changed = append(r.Changed, f.Name)
		}
	}
}

// restoreUnmarked takes out, by the annotations, what has lost its marks.
func (r *Result) restoreUnmarked(files []File) ([]File, error) {
	if !slices.ContainsFunc(files, func(f File) bool { return bytes.Contains(f.Text, []byte(recordPrefix)) }) {
		return files, nil
	}
	streams, found, err := readFiles(files)
	if err != nil {
		return nil, err
	}
	c, gone := newChanges(streams), map[string]bool{}
	for i := range found {
		m := &found[i]
		annotations := field(field(m.node, "metadata"), "annotations")
		if !isWorkload(m.APIVersion, m.Kind) || annotations == nil || !bytes.Contains(files[m.file].Text, []byte(recordPrefix)) {
			continue
		}
		if err := r.restoreWorkload(c, m, gone); err != nil {
			return nil, fmt.Errorf("%s: %w", m.where, err)
		}
	}
	if len(gone) == 0 {
		return files, nil
	}
	for _, m := range found {
		if gone[m.key()] && m.item < 0 {
			c.removed[m.file][m.document] = true
		}
	}
	return c.write(-1, nil, true)
}

func (r *Result) restoreWorkload(c *changes, m *manifest, gone map[string]bool) error {
	o, err := m.decode()
	if err != nil {
		return err
	}
	all, err := records(child(o, "metadata", "annotations"))
	if err != nil || len(all) == 0 {
		return err
	}
	if o, err = c.object(m); err != nil {
		return err
	}
	for container, rec := range all {
		if err := rec.restore(o, container); err != nil {
			return err
		}
		keys, err := rec.keys()
		if err != nil {
			return err
		}
		for key := range keys {
			gone[key] = true
		}
		r.say(m.where, "%s taken out of %s %s by its annotation: the marks are lost, so the text may differ from what it was", rec.Container, m.Kind, m.Name)
	}
	return nil
}

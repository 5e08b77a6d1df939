package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"
)

// A release is the chart as it is packed.
type release struct {
	source, output string // folders
	// version of the program, and tag of the image. Empty: what Chart.yaml says.
	version string
	date    time.Time
}

// tag is what an image's may be.
var tag = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// pack writes the chart into one file, and returns its path.
func (r release) pack() (string, error) {
	if err := fresh(r.source); err != nil {
		return "", err
	}
	head, version, err := r.head()
	if err != nil {
		return "", err
	}
	text, err := r.archive(head)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(r.output, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(r.output, "csi-fencepost-"+version+".tgz")
	return path, os.WriteFile(path, text, 0o644)
}

// fresh is an error where the chart is not what it is made from.
func fresh(source string) error {
	files, err := generated(source)
	if err != nil {
		return err
	}
	var stale []error
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(source, folder, name)); err != nil || !bytes.Equal(got, want) {
			stale = append(stale, fmt.Errorf("%s is not what it is made from: go run ./deploy/chart -update", filepath.Join(folder, name)))
		}
	}
	return errors.Join(stale...)
}

// head is Chart.yaml with the versions of this release. That of the chart has to be a semantic one:
// where the program's is none, as of a commit, it stands behind that of Chart.yaml.
func (r release) head() (text []byte, version string, err error) {
	text, err = os.ReadFile(filepath.Join(r.source, folder, "Chart.yaml"))
	if err != nil {
		return nil, "", err
	}
	chart := map[string]any{}
	if err := yaml.Unmarshal(text, &chart); err != nil {
		return nil, "", fmt.Errorf("%s/Chart.yaml: %w", folder, err)
	}
	version, _ = chart["version"].(string)
	if r.version == "" {
		return text, version, nil
	}
	if !tag.MatchString(r.version) {
		return nil, "", fmt.Errorf("-version %q cannot be the tag of an image: letters, digits, _ . - and no more than 128", r.version)
	}
	if bare := strings.TrimPrefix(r.version, "v"); semver.Canonical("v"+bare) == "v"+bare {
		version = bare
	} else {
		version += "+" + strings.ReplaceAll(r.version, "_", "-")
	}
	chart["version"], chart["appVersion"] = version, r.version
	text, err = yaml.Marshal(chart)
	return text, version, err
}

// archive is a tar archive of the chart, compressed: what Helm takes for one.
func (r release) archive(head []byte) ([]byte, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	in := os.DirFS(filepath.Join(r.source, folder))
	// In the order of their names.
	err := fs.WalkDir(in, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		text, err := fs.ReadFile(in, name)
		if err != nil {
			return err
		}
		if name == "Chart.yaml" {
			text = head
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: "csi-fencepost/" + name, Size: int64(len(text)), Mode: 0o644, ModTime: r.date, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = archive.Write(text)
		return err
	})
	if err := errors.Join(err, archive.Close(), compressed.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"
)

// pluginName is what the plugin is called after kubectl, and what krew calls it.
const pluginName = "fencepost"

// download is where a release's files are.
const download = "https://" + mainModule + "/releases/download"

// A krewManifest tells krew what the plugin is and where its archives are, as in
// https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest. The tests have krew read it.
type krewManifest struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       krewSpec          `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector map[string]map[string]string `json:"selector"`
	URI      string                       `json:"uri"`
	SHA256   string                       `json:"sha256"`
	Bin      string                       `json:"bin"`
}

// plugin adds the archives of kubectl's plugin, and its manifest for krew. The plugin is
// csi-fencepost itself under another name, so it is there for what that is there for: Linux.
func (r release) plugin(files files, programs map[string][]byte) error {
	version, err := r.semantic()
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return err
	}
	manifest := krewManifest{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: map[string]string{"name": pluginName},
		Spec: krewSpec{Version: version, Homepage: "https://" + mainModule,
			ShortDescription: "Say what a stuck volume waits for, fence dead nodes",
			Description: "Says which nodes hold a single-writer volume and what would free it (explain), whether\n" +
				"every driver is guarded and what would happen if a node died now (doctor), and takes a\n" +
				"person's word that a node is off (fence confirm). The cluster needs csi-fencepost beside\n" +
				"the drivers' external-attachers; inject puts it there.\n"}}
	for _, arch := range architectures {
		// krew refuses an archive without the license.
		content, err := compressed([]entry{{path: "LICENSE", content: license, mode: 0o644}, {path: "kubectl-" + pluginName, content: programs[arch], mode: 0o755}}, r)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("kubectl-%s_%s_linux_%s.tar.gz", pluginName, r.version, arch)
		files[name] = file{content, 0o644}
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, krewPlatform{
			Selector: map[string]map[string]string{"matchLabels": {"os": "linux", "arch": arch}},
			URI:      strings.Join([]string{download, r.version, name}, "/"),
			SHA256:   fmt.Sprintf("%x", sha256.Sum256(content)), Bin: "kubectl-" + pluginName})
	}
	text, err := yaml.Marshal(manifest)
	files[pluginName+".yaml"] = file{text, 0o644}
	return err
}

// semantic is the version as krew takes one: semantic, with a v. That of a commit without a tag
// stands behind v0.0.0.
func (r release) semantic() (string, error) {
	if semver.IsValid(r.version) && semver.Canonical(r.version) == r.version {
		return r.version, nil
	}
	version := "v0.0.0-g" + strings.Map(func(c rune) rune {
		if c == '.' || c == '-' || unicode.IsLetter(c) || unicode.IsDigit(c) {
			return c
		}
		return '-'
	}, r.version)
	if !semver.IsValid(version) {
		return "", fmt.Errorf("-version %q cannot be made a semantic version for krew", r.version)
	}
	return version, nil
}

// compressed is a tar archive of files, as gzip compresses it.
func compressed(entries []entry, r release) ([]byte, error) {
	plain, err := tarOf(entries, r.date)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = zip.Write(plain)
	if err := errors.Join(err, zip.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

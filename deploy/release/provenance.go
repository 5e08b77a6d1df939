package main

import (
	"archive/tar"
	"bytes"
	"context"
	hashes "crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	repository = "https://github.com/csi-fencepost/csi-fencepost"
	buildType  = repository + "/tree/main/deploy/release"
)

// provenance is the statement, or an error where what is there contradicts itself.
func (r release) provenance(ctx context.Context) ([]byte, error) {
	commit, date, err := r.commit(ctx)
	if err != nil {
		return nil, err
	}
	subjects, err := r.subjects()
	if err != nil {
		return nil, err
	}
	version, err := r.toolchain(subjects)
	if err != nil {
		return nil, err
	}
	source := "git+" + repository
	dependencies := []descriptor{
		{URI: source, Digest: map[string]string{"gitCommit": commit}},
		{Name: version, URI: "https://go.dev/dl/#" + version},
	}
	for _, name := range []string{"go.mod", "go.sum", "cmd/csi-fencepost-agents/go.mod", "cmd/csi-fencepost-agents/go.sum", "cmd/csi-fencepost-webhook/go.mod", "cmd/csi-fencepost-webhook/go.sum"} {
		sum, err := sumOf(filepath.Join(r.source, name))
		if err != nil {
			return nil, err
		}
		dependencies = append(dependencies, descriptor{Name: name, Digest: sha256(sum)})
	}
	s := statement{Type: "https://in-toto.io/Statement/v1", Subject: subjects, PredicateType: "https://slsa.dev/provenance/v1",
		Predicate: provenance{
			BuildDefinition: definition{BuildType: buildType, ResolvedDependencies: dependencies, InternalParameters: toolchain{version},
				ExternalParameters: parameters{Source: source + "@" + commit, Version: r.version, Date: date, Image: r.image}},
			RunDetails: details{Builder: builder{r.builder}}}}
	if r.invocation != "" {
		s.Predicate.RunDetails.Metadata = &metadata{r.invocation}
	}
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}

// commit is that of the checkout, and its date in seconds since 1970.
func (r release) commit(ctx context.Context) (commit, date string, err error) {
	git := func(args ...string) string {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", r.source}, args...)...)
		out, failed := cmd.Output()
		if failed != nil && err == nil {
			err = fmt.Errorf("git %s in %s: %w", strings.Join(args, " "), r.source, failed)
		}
		return strings.TrimSpace(string(out))
	}
	commit, date = git("rev-parse", "HEAD"), git("log", "-1", "--format=%ct")
	changed := git("status", "--porcelain")
	if err == nil && changed != "" {
		err = fmt.Errorf("the checkout has what commit %s does not have, so that nothing built here is known to come from it; commit it, or take it away:\n%s", commit, changed)
	}
	return commit, date, err
}

// line is one of SHA256SUMS.
var line = regexp.MustCompile(`^([0-9a-f]{64})  ([A-Za-z0-9_][A-Za-z0-9_.+-]*)$`)

// subjects are the files in SHA256SUMS, each as it is there and in the folder, and the image.
func (r release) subjects() ([]descriptor, error) {
	text, err := os.ReadFile(filepath.Join(r.output, "SHA256SUMS"))
	if err != nil {
		return nil, fmt.Errorf("what make dist wrote: %w", err)
	}
	var all []descriptor
	for l := range strings.Lines(string(text)) {
		found := line.FindStringSubmatch(strings.TrimSuffix(l, "\n"))
		if found == nil {
			return nil, fmt.Errorf("SHA256SUMS: %q is no checksum and the name of a file", l)
		}
		sum, err := sumOf(filepath.Join(r.output, found[2]))
		if err != nil {
			return nil, err
		}
		if sum != found[1] {
			return nil, fmt.Errorf("%s is not what SHA256SUMS says, its SHA-256 is %s: run make dist again", found[2], sum)
		}
		all = append(all, descriptor{Name: found[2], Digest: sha256(sum)})
	}
	image, err := r.imageDigest()
	if err != nil {
		return nil, err
	}
	name := r.image
	if name == "" {
		name = "csi-fencepost"
	}
	return append(all, descriptor{Name: name, Digest: sha256(image)}), nil
}

func sumOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := hashes.New()
	_, err = io.Copy(sum, file)
	return fmt.Sprintf("%x", sum.Sum(nil)), err
}

// imageDigest is that of the one image in the archive, which registries know it by.
func (r release) imageDigest() (string, error) {
	name := "csi-fencepost_" + r.version + ".oci.tar"
	file, err := os.Open(filepath.Join(r.output, name))
	if err != nil {
		return "", err
	}
	defer file.Close()
	for archive := tar.NewReader(file); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("%s has no index.json", name)
		} else if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if header.Name != "index.json" {
			continue
		}
		var index struct{ Manifests []struct{ Digest string } }
		if err := json.NewDecoder(archive).Decode(&index); err != nil {
			return "", fmt.Errorf("%s: index.json: %w", name, err)
		}
		if len(index.Manifests) == 1 {
			if digest, ok := strings.CutPrefix(index.Manifests[0].Digest, "sha256:"); ok {
				return digest, nil
			}
		}
		return "", fmt.Errorf("%s: index.json does not name one image by its SHA-256", name)
	}
}

// toolchain is the Go that all programs among the files were built with. It is an error if one
// was built as another version than the release's, or there is none.
func (r release) toolchain(subjects []descriptor) (string, error) {
	version := ""
	for _, s := range subjects {
		if !strings.Contains(s.Name, "_linux_") || strings.Contains(s.Name, ".cdx.") || strings.Contains(s.Name, ".tar.") {
			continue
		}
		program, err := os.ReadFile(filepath.Join(r.output, s.Name))
		if err != nil {
			return "", err
		}
		info, err := buildinfo.Read(bytes.NewReader(program))
		if err != nil {
			return "", fmt.Errorf("%s says nothing of how it was built: %w", s.Name, err)
		}
		if !strings.Contains(s.Name, "_"+r.version+"_") {
			return "", fmt.Errorf("%s is not of version %s", s.Name, r.version)
		}
		if version != "" && version != info.GoVersion {
			return "", fmt.Errorf("%s was built with %s, another one with %s", s.Name, info.GoVersion, version)
		}
		version = info.GoVersion
	}
	if version == "" {
		return "", errors.New("SHA256SUMS names no program")
	}
	return version, nil
}

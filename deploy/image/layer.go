package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// An entry is a folder (without content), a file or a link of a tar archive.
type entry struct {
	path    string
	content []byte
	mode    int64
	link    string // where a link leads to; "": it is none
}

// tarOf is a tar archive of root's files, all of one date, in the order given.
func tarOf(entries []entry, date time.Time) ([]byte, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, e := range entries {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: e.path, Size: int64(len(e.content)), Mode: e.mode, ModTime: date, Format: tar.FormatUSTAR}
		switch {
		case e.link != "":
			header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
		case e.content == nil:
			header.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(e.content); err != nil {
			return nil, err
		}
	}
	// It writes the end: only then are the bytes whole.
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

const (
	programPath = "csi-fencepost"
	webhookPath = "csi-fencepost-webhook"
	// Where Go looks for certificates on Debian; one of the places on others.
	certificatesPath = "etc/ssl/certs/ca-certificates.crt"
)

// agentNames are those of the fence agents that csi-fencepost-agents is, in the order of its help.
var agentNames = []string{"redfish", "ec2", "azure", "gce", "hcloud", "openstack", "proxmox", "vsphere"}

// agentsFolder is where csi-fencepost looks for agents unless --agent-dirs says otherwise.
const agentsFolder = "usr/sbin/"

// layers are the image's: csi-fencepost, the fence agents, and the webhook.
func (r release) layers(programs map[command][]byte) ([]v1.Layer, error) {
	first := []entry{{path: programPath, content: programs[guard], mode: 0o755}}
	if r.certificates != "" {
		certificates, err := os.ReadFile(r.certificates)
		if err != nil {
			return nil, fmt.Errorf("-certificates: %w", err)
		}
		first = append(first, directory("etc/"), directory("etc/ssl/"), directory("etc/ssl/certs/"),
			entry{path: certificatesPath, content: certificates, mode: 0o644})
	}
	second := []entry{directory("usr/"), directory(agentsFolder), {path: agentsFolder + "csi-fencepost-agents", content: programs[agents], mode: 0o755}}
	for _, name := range agentNames {
		second = append(second, entry{path: agentsFolder + "fence_fencepost_" + name, link: "csi-fencepost-agents", mode: 0o777})
	}
	third := []entry{{path: webhookPath, content: programs[webhook], mode: 0o755}}
	var all []v1.Layer
	for _, entries := range [][]entry{first, second, third} {
		plain, err := tarOf(entries, r.date)
		if err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(plain)), nil },
			tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		all = append(all, layer)
	}
	return all, nil
}

func directory(path string) entry { return entry{path: path, mode: 0o755} }

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

// An entry is a folder (without content) or a file of a tar archive.
type entry struct {
	path    string
	content []byte
	mode    int64
}

// tarOf is a tar archive of root's files, all of one date, in the order given.
func tarOf(entries []entry, date time.Time) ([]byte, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, e := range entries {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: e.path, Size: int64(len(e.content)), Mode: e.mode, ModTime: date, Format: tar.FormatUSTAR}
		if e.content == nil {
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
	// Where Go looks for certificates on Debian; one of the places on others.
	certificatesPath = "etc/ssl/certs/ca-certificates.crt"
)

// layer is the image's only one.
func (r release) layer(program []byte) (v1.Layer, error) {
	entries := []entry{{programPath, program, 0o755}}
	if r.certificates != "" {
		certificates, err := os.ReadFile(r.certificates)
		if err != nil {
			return nil, fmt.Errorf("-certificates: %w", err)
		}
		entries = append(entries, entry{"etc/", nil, 0o755}, entry{"etc/ssl/", nil, 0o755}, entry{"etc/ssl/certs/", nil, 0o755},
			entry{certificatesPath, certificates, 0o644})
	}
	plain, err := tarOf(entries, r.date)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(plain)), nil },
		tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
}

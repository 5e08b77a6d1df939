package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"time"
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

// layer returns the image's only layer, compressed, and the digest of what it is
// uncompressed.
func (r release) layer(program []byte) (compressed []byte, diffID string, err error) {
	entries := []entry{{programPath, program, 0o755}}
	if r.certificates != "" {
		certificates, err := os.ReadFile(r.certificates)
		if err != nil {
			return nil, "", fmt.Errorf("-certificates: %w", err)
		}
		entries = append(entries, entry{"etc/", nil, 0o755}, entry{"etc/ssl/", nil, 0o755}, entry{"etc/ssl/certs/", nil, 0o755},
			entry{certificatesPath, certificates, 0o644})
	}
	plain, err := tarOf(entries, r.date)
	if err != nil {
		return nil, "", err
	}
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, "", err
	}
	if _, err := zip.Write(plain); err != nil {
		return nil, "", err
	}
	if err := zip.Close(); err != nil {
		return nil, "", err
	}
	return out.Bytes(), digest(plain), nil
}

// digest names content as OCI does.
func digest(content []byte) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(content))
}

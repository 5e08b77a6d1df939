// Package realnode has what a real node needs beside a kubelet and a container runtime:
// its first process (init), and the image of the only container that runs there (db).
package realnode

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Image is the name of the image in Programs.Archive.
const Image = "localhost/fencepost-db:1"

// Programs of real nodes, as files.
type Programs struct {
	// Init is the first process of a node.
	Init string
	// Archive holds the image; its entrypoint is the database, and without arguments
	// it holds a pod's namespaces.
	Archive string
}

// Build builds them into a folder.
func Build(ctx context.Context, folder string) (Programs, error) {
	p := Programs{Init: filepath.Join(folder, "init"), Archive: filepath.Join(folder, "db.tar")}
	if err := compile(ctx, "init", p.Init); err != nil {
		return p, err
	}
	db := filepath.Join(folder, "db")
	if err := compile(ctx, "db", db); err != nil {
		return p, err
	}
	program, err := os.ReadFile(db)
	if err != nil {
		return p, err
	}
	archive, err := pack(program)
	if err != nil {
		return p, err
	}
	return p, os.WriteFile(p.Archive, archive, 0o644)
}

// compile builds a program that needs nothing but the kernel.
func compile(ctx context.Context, name, output string) error {
	_, file, _, _ := runtime.Caller(0)
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", output, "./"+name)
	build.Dir = filepath.Dir(file)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build of %s: %w\n%s", name, err, text)
	}
	return nil
}

// pack makes an archive as docker save does, with one layer that holds the program.
func pack(program []byte) ([]byte, error) {
	layer, err := archive(map[string][]byte{"db": program}, 0o755)
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/db"}, "Cmd": []string{"pause"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{Image}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	return archive(map[string][]byte{"config.json": config, "manifest.json": manifest, "layer.tar": layer}, 0o644)
}

func archive(files map[string][]byte, mode int64) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

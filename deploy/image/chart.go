package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// chart adds the Helm chart, as package chart packs it.
func (r release) chart(ctx context.Context, files files, work string) error {
	folder, err := filepath.Abs(filepath.Join(work, "chart"))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "run", "./deploy/chart", "-o", folder, "-version", r.version, "-date", strconv.FormatInt(r.date.Unix(), 10))
	cmd.Dir, cmd.Env = r.source, ofGo()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go run ./deploy/chart: %w\n%s", err, out)
	}
	packed, err := filepath.Glob(filepath.Join(folder, "csi-fencepost-*.tgz"))
	if err != nil || len(packed) != 1 {
		return fmt.Errorf("go run ./deploy/chart has packed %d charts, want 1: %v", len(packed), err)
	}
	content, err := os.ReadFile(packed[0])
	files[filepath.Base(packed[0])] = file{content, 0o644}
	return err
}

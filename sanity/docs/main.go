package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/csi-fencepost/csi-fencepost/sanity/mutants/guards"
	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

const (
	configurationPage = "docs/use/configure.md"
	flagsPage         = "docs/use/flags.md"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "docs: %v\n", err)
		os.Exit(1)
	}
}

// run writes the pages.
func run(ctx context.Context) error {
	root, err := repository()
	if err != nil {
		return err
	}
	page := filepath.Join(root, configurationPage)
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	fields, err := configurationFields(root)
	if err != nil {
		return err
	}
	if text, err = tool.Between(text, "make docs", fields); err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	if err := os.WriteFile(page, text, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, guards.PageFile), []byte(guards.Page()), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, profilesPage), []byte(profilesText()), 0o644); err != nil {
		return err
	}
	p, err := buildProgram(ctx, root)
	if err != nil {
		return err
	}
	defer p.remove()
	flags, err := flagsText(ctx, p)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, flagsPage), flags, 0o644)
}

// repository is the folder of go.mod, from the working directory upwards.
func repository() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := at; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above %s: run it in the repository", at)
		}
	}
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// A release is one that was built, and what is known of how.
type release struct {
	source     string // folder of the checkout
	output     string // folder of what was built
	version    string
	image      string // name with its registry; empty: none was given
	builder    string // URI
	invocation string // URI of the run; empty where there is none
}

func run(ctx context.Context, args []string, progress io.Writer) error {
	var r release
	fs := flag.NewFlagSet("release", flag.ContinueOnError)
	fs.StringVar(&r.source, "source", ".", "The folder of the checkout that it was built from.")
	fs.StringVar(&r.output, "o", "bin/dist", "The folder of what was built.")
	fs.StringVar(&r.version, "version", "", "The version that was built.")
	fs.StringVar(&r.image, "image", "", "The image's name with its registry, if one was given.")
	fs.StringVar(&r.builder, "builder", buildType+"#a-machine-of-ones-own", "Who built it: the URI of the workflow, with its tag. By default: a person's own machine, which proves nothing.")
	fs.StringVar(&r.invocation, "invocation", "", "The URI of the workflow's run.")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || r.version == "" || r.builder == "" {
		return fmt.Errorf("needs -version and a -builder, and takes flags only; got %q", args)
	}
	text, err := r.provenance(ctx)
	if err != nil {
		return err
	}
	path := filepath.Join(r.output, "csi-fencepost_"+r.version+".intoto.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return err
	}
	fmt.Fprintln(progress, path)
	return nil
}

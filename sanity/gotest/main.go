package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

func main() {
	tool.Main("gotest", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("gotest", flag.ContinueOnError)
	flags.SetOutput(out)
	quick := flags.Bool("check", false, "lint and test what changed, and what imports it, instead")
	within := flags.Duration("within", 75*time.Second, "with -check: begin no further tests after so long")
	whole := flags.Bool("every", false, "fail at once where a package that has tests is in none of the go tests")
	but := flags.String("but", "", "with -every: packages that match this regular expression may be missing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *quick {
		return check(ctx, out, *within)
	}
	groups := split(flags.Args())
	if len(groups) == 0 {
		return fmt.Errorf("say what to test: the words for go test, after a --")
	}
	if *whole {
		if err := every(ctx, groups, *but); err != nil {
			return err
		}
	}
	r := newReport(out)
	defer r.close()
	for _, words := range groups {
		if err := r.goTest(ctx, words); err != nil {
			return err
		}
	}
	return nil
}

// split takes the words for each go test apart at the --.
func split(words []string) (groups [][]string) {
	for _, word := range words {
		switch {
		case word == "--" || len(groups) == 0:
			groups = append(groups, nil)
		}
		if word != "--" {
			groups[len(groups)-1] = append(groups[len(groups)-1], word)
		}
	}
	return groups
}

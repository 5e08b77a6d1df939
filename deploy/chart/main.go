package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "chart: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	var r release
	fs := flag.NewFlagSet("chart", flag.ContinueOnError)
	fs.StringVar(&r.source, "source", ".", "The folder of the main module.")
	fs.StringVar(&r.output, "o", "bin/dist", "The folder for the packed chart.")
	fs.StringVar(&r.version, "version", "", "The version of the program, which is the tag of its image, and of the chart where it is a semantic one. Empty: as in Chart.yaml.")
	date := fs.Int64("date", 0, "The date that stands in the packed chart, in seconds since 1970: that of the commit.")
	anew := fs.Bool("update", false, "Write the files of the chart anew that are made from others, and pack nothing.")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("takes flags only, got %q", fs.Args())
	}
	if *anew {
		return update(r.source)
	}
	r.date = time.Unix(*date, 0).UTC()
	path, err := r.pack()
	if err == nil {
		fmt.Fprintln(stdout, path)
	}
	return err
}

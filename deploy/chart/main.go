package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "chart: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	fs := flag.NewFlagSet("chart", flag.ExitOnError)
	source := fs.String("source", ".", "The folder of the main module.")
	anew := fs.Bool("update", false, "Write the files of the chart anew that are made from others.")
	_ = fs.Parse(args)
	if *anew {
		return update(*source)
	}
	return nil
}

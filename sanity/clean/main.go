// Command clean removes what tests, the demo, benches and builds left on disk, but
// for what somebody uses: binaries of the control plane that run or are being
// built, and temporary folders whose owners live. It says what it left, and why.
//
//	go run ./sanity/clean        make clean-cache
//	go run ./sanity/clean -list  what there is, and how big; removes nothing
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
	"github.com/csi-fencepost/csi-fencepost/sanity/tempdir"
	"github.com/csi-fencepost/csi-fencepost/sanity/tool"
)

func main() {
	tool.Main("clean", func(context.Context) error { return run(os.Args[1:], os.Stdout) })
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("clean", flag.ContinueOnError)
	flags.SetOutput(out)
	list := flags.Bool("list", false, "say what there is, and remove nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *list {
		return show(out)
	}
	return remove(out, tempdir.Base(), "bin")
}

// remove removes the temporary folders below base, the control plane's binaries,
// and what was built in bin.
func remove(out io.Writer, base, bin string) error {
	var errs []error
	owned := false
	for _, path := range tempdir.All(base) {
		removed, err := tempdir.RemoveUnowned(path)
		if !removed {
			fmt.Fprintf(out, "%s is left: its owner lives\n", path)
		}
		owned = owned || !removed
		errs = append(errs, err)
	}
	// Whoever has a stage may start any program of the control plane again.
	if owned {
		fmt.Fprintln(out, "the control plane's binaries are left: whoever owns one of these may need them")
	} else {
		left, err := controlplane.ClearCache()
		for _, path := range left {
			fmt.Fprintf(out, "%s is left: a process runs it\n", path)
		}
		errs = append(errs, err)
	}
	bin, err := filepath.Abs(bin)
	switch {
	case err != nil:
		errs = append(errs, err)
	case tempdir.Runs(bin):
		fmt.Fprintf(out, "%s is left: a process runs what is in it\n", bin)
	default:
		errs = append(errs, os.RemoveAll(bin))
	}
	return errors.Join(errs...)
}

// show lists what run would remove.
func show(out io.Writer) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	for _, place := range []struct {
		what  string
		paths []string
	}{
		{filepath.Join(cache, "csi-fencepost") + ": the control plane's binaries", []string{filepath.Join(cache, "csi-fencepost")}},
		{filepath.Join(tempdir.Base(), tempdir.Prefix) + "*: stages, demos and copies, of now and of the killed", tempdir.All(tempdir.Base())},
		{"bin: what was built in this checkout", []string{"bin"}},
	} {
		var bytes int64
		for _, path := range place.paths {
			bytes += size(path)
		}
		fmt.Fprintf(out, "  %6d MiB  %s\n", bytes>>20, place.what)
	}
	return nil
}

// size of the files below a folder; what cannot be read counts as nothing.
func size(folder string) (bytes int64) {
	_ = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

package inject

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// manifestsVariable names a folder of vendors' manifests, which are theirs and
// not in this repository. They are part of the run exactly when it is set.
const manifestsVariable = "CSI_FENCEPOST_MANIFESTS"

func TestMain(m *testing.M) {
	flag.Parse()
	if folder := os.Getenv(manifestsVariable); folder != "" {
		if err := checkVendors(folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// checkVendors: each manifest works, or there is nothing to guard in it.
func checkVendors(folder string) error {
	names, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(names) == 0 {
		return fmt.Errorf("%s=%s has no .yaml file: %v", manifestsVariable, folder, err)
	}
	var errs []error
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err == nil {
			err = checkVendor(File{filepath.Base(name), text})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func checkVendor(f File) error {
	o := Options{Namespace: "storage"} // many name none
	r, err := Inject([]File{f}, o)
	if nothing := (*NothingError)(nil); errors.As(err, &nothing) {
		fmt.Printf("%s: %v\n", f.Name, err)
		return nil
	}
	if err != nil {
		return err
	}
	again, err := Inject(r.Files, o)
	if err != nil || !bytes.Equal(again.Files[0].Text, r.Files[0].Text) {
		return fmt.Errorf("injecting twice is not the same as once: %v", err)
	}
	back, err := Uninject(r.Files)
	if err != nil || !bytes.Equal(back.Files[0].Text, f.Text) {
		return fmt.Errorf("uninject does not give it back: %v", err)
	}
	if back, err = Uninject([]File{{f.Name, withoutComments(r.Files[0].Text)}}); err != nil || bytes.Contains(back.Files[0].Text, []byte("fencepost")) {
		return fmt.Errorf("uninject without the marks leaves something: %v", err)
	}
	for _, p := range r.Plans {
		fmt.Printf("%s: %s %s/%s, driver %s, mode %s: injected and restored\n", f.Name, p.Kind, p.Namespace, p.Name, p.Driver, p.Mode)
	}
	return nil
}

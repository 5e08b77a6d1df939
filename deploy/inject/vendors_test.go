package inject

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// checkVendors: each manifest works, or there is nothing to guard in it, or it is
// a template, or a file beside it, NAME.yaml.refused, has what is wrong with it in
// the words of the refusal.
func checkVendors(folder string) error {
	names, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(names) == 0 {
		return fmt.Errorf("%s=%s has no .yaml file: %v", manifestsVariable, folder, err)
	}
	var errs []error
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err == nil {
			refused, _ := os.ReadFile(name + ".refused")
			err = checkVendor(File{filepath.Base(name), text}, strings.TrimSpace(string(refused)))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// hasAccountsRights: each plan binds its own account, in the text that is written, or in
// that for the cluster of the attacher's kubeconfig.
func hasAccountsRights(r *Result) error {
	for _, p := range r.Plans {
		bound := 0
		for _, d := range append(slices.Clone(p.Documents), p.Elsewhere...) {
			if !bytes.Contains(append(slices.Clone(r.Files[0].Text), r.Elsewhere...), []byte("name: "+d.Name+"\n")) {
				return fmt.Errorf("%s %s is not in it", d.Kind, d.Name)
			}
			if strings.HasSuffix(d.Kind, "Binding") && strings.Contains(d.Text, "name: "+p.ServiceAccount+"\n") {
				bound++
			}
		}
		if bound < 4 {
			return fmt.Errorf("%s %s: %d bindings for account %s", p.Kind, p.Name, bound, p.ServiceAccount)
		}
	}
	return nil
}

// checkVendor: a driver that has no name in it is given one.
func checkVendor(f File, refused string) error {
	o := Options{Namespace: "storage"} // many name none
	r, err := Inject([]File{f}, o)
	if refused != "" {
		if err == nil || !strings.Contains(err.Error(), refused) {
			return fmt.Errorf("it is not refused with %q, but: %v", refused, err)
		}
		fmt.Printf("%s: %v\n", f.Name, err)
		return nil
	}
	if err != nil && strings.Contains(err.Error(), "Say it with --driver NAME") {
		fmt.Printf("%s: %v\n", f.Name, err)
		o.Drivers = []string{"unknown.example.com"}
		r, err = Inject([]File{f}, o)
	}
	if err != nil && strings.Contains(err.Error(), "a template is left in it") {
		fmt.Printf("%s: %v\n", f.Name, err)
		return nil
	}
	if nothing := (*NothingError)(nil); errors.As(err, &nothing) {
		fmt.Printf("%s: %v\n", f.Name, err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := hasAccountsRights(r); err != nil {
		return err
	}
	again, err := Inject(r.Files, Options{Namespace: "storage"})
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

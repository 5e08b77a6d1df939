package manifests

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
	"github.com/csi-fencepost/csi-fencepost/deploy/kustomize"
	"github.com/csi-fencepost/csi-fencepost/deploy/policy"
)

// injectAs are the ways to put the sidecar in where nobody edits manifests by
// hand: the manifests are read, and stay as they are.
type injectAs struct {
	policy    bool
	kustomize string // folder of the component
}

func (f *injectFlags) addAs() {
	f.set.BoolVar(&f.as.policy, "as-policy", false, "Print admission policies that add the sidecar to each write of the workload, with rights and configuration, in place of the manifests: for operators that revert every edit. Needs Kubernetes 1.36.")
	f.set.StringVar(&f.as.kustomize, "as-kustomize", "", "A folder to write a kustomize component to that adds the sidecar, with rights and configuration, in place of the manifests.")
}

// askedAs tells whether one of them is asked for; an error, that two are.
func (f *injectFlags) askedAs() (bool, error) {
	switch ways := f.as; {
	case ways.policy && ways.kustomize != "":
		return false, f.set.Wrong("--as-policy and --as-kustomize are two ways to the same: give one of them")
	case (ways.policy || ways.kustomize != "") && f.output != "":
		return false, f.set.Wrong("--output is for changed manifests: --as-policy prints, --as-kustomize names its own folder")
	case (ways.policy || ways.kustomize != "") && f.check:
		return false, f.set.Wrong("--check is for changed manifests: --as-policy and --as-kustomize change none")
	}
	return f.as.policy || f.as.kustomize != "", nil
}

// writeAs writes the policies or the component.
func (f *injectFlags) writeAs(files []inject.File, stdout, stderr io.Writer) error {
	options := f.options
	options.Separate = true
	result, err := inject.Inject(files, options)
	if err != nil {
		return err
	}
	if err := f.apart(result, stderr); err != nil {
		return err
	}
	for _, finding := range result.Findings {
		fmt.Fprintln(stderr, finding)
	}
	if f.as.policy {
		return printPolicies(cli.Verbatim(stdout), result)
	}
	component, err := kustomize.Component(result.Plans, result.Documents)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.as.kustomize, 0o755); err != nil {
		return err
	}
	for _, file := range component {
		name := filepath.Join(f.as.kustomize, file.Name)
		if err := os.WriteFile(name, file.Text, 0o644); err != nil {
			return err
		}
		fmt.Fprintln(stderr, "written:", name)
	}
	return nil
}

func printPolicies(stdout io.Writer, r *inject.Result) error {
	policies, err := policy.Render(r.Plans)
	if err != nil {
		return err
	}
	if len(r.Documents) > 0 {
		policies = append(append(r.Documents, "---\n"...), policies...)
	}
	_, err = stdout.Write(policies)
	return err
}

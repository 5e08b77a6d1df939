package manifests

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/deploy/inject"
	"github.com/csi-fencepost/csi-fencepost/deploy/kustomize"
	"github.com/csi-fencepost/csi-fencepost/deploy/policy"
	"github.com/csi-fencepost/csi-fencepost/deploy/values"
	"github.com/csi-fencepost/csi-fencepost/fence/file"
)

// injectAs are the ways to put the sidecar in where nobody edits manifests by
// hand: the manifests are read, and stay as they are.
type injectAs struct {
	policy    bool
	kustomize string   // folder of the component
	chart     string   // of the vendor, as package values knows it
	values    []string // files of the values that the chart was rendered with
}

func (f *injectFlags) addAs() {
	f.set.BoolVar(&f.as.policy, "as-policy", false, "Print admission policies that add the sidecar to each write of the workload, with rights and configuration, in place of the manifests: for operators that revert every edit. Needs Kubernetes 1.36.")
	f.set.StringVar(&f.as.kustomize, "as-kustomize", "", "A folder to write a kustomize component to that adds the sidecar, with rights and configuration, in place of the manifests.")
	f.set.StringVar(&f.as.chart, "as-values", "", "Write values with which the vendor's chart renders the sidecar itself to --output, with rights and configuration beside them, in place of the manifests. One of "+strings.Join(values.Names(), ", ")+"; hcloud and cinder say why their charts cannot. Needs --values.")
	f.set.StringArrayVar(&f.as.values, "values", nil, "For --as-values: a file of values that the manifests were rendered with, in Helm's order: those of the chart (helm show values) first, then your own. Can be repeated. For linstor, the LinstorCluster.")
}

// askedAs tells whether one of them is asked for; an error, that two are.
func (f *injectFlags) askedAs() (bool, error) {
	ways, printed := f.as, f.as.policy || f.as.kustomize != ""
	switch {
	case ways.policy && ways.kustomize != "":
		return false, f.set.Wrong("--as-policy and --as-kustomize are two ways to the same: give one of them")
	case printed && ways.chart != "":
		return false, f.set.Wrong("--as-values is another way to what --as-policy and --as-kustomize do: give one of them")
	case printed && f.output != "":
		return false, f.set.Wrong("--output is for changed manifests: --as-policy prints, --as-kustomize names its own folder")
	case (printed || ways.chart != "") && f.check:
		return false, f.set.Wrong("--check is for changed manifests: --as-policy, --as-kustomize and --as-values change none")
	case ways.chart == "" && len(ways.values) > 0:
		return false, f.set.Wrong("--values is for --as-values")
	case ways.chart == "" && f.set.Changed("as-values"):
		return false, f.set.Wrong("--as-values is empty: it has to be one of %s", strings.Join(values.Names(), ", "))
	case ways.chart == "":
		return printed, nil
	}
	if _, err := values.For(ways.chart); err != nil {
		return false, f.set.Wrong("--as-values: %v", err)
	}
	switch {
	case f.output == "":
		return false, f.set.Wrong("--as-values writes values and, in a file of their own, rights and configuration: name the folder with --output")
	case len(ways.values) == 0:
		return false, f.set.Wrong("--as-values needs --values, what the manifests were rendered with: Helm replaces whole lists, so that what is in yours has to be in those that are written")
	}
	return true, nil
}

// writeAs writes the policies, the component or the values.
func (f *injectFlags) writeAs(files []inject.File, stdout, stderr io.Writer) error {
	options := f.options
	options.Separate, options.Beside = true, false
	chart, given, err := f.chartValues(&options)
	if err != nil {
		return err
	}
	if options.Before, err = f.earlierRun(); err != nil {
		return err
	}
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
	switch {
	case f.as.policy:
		return printPolicies(cli.Verbatim(stdout), result)
	case chart != nil:
		text, err := chart.Render(result.Plans, given)
		if err != nil {
			return fmt.Errorf("--as-values %s: %w", chart.Name, err)
		}
		if note := chart.Note(result.Plans, given); note != "" {
			fmt.Fprintln(stderr, note)
		}
		written := []inject.File{{Name: valuesFile, Text: text}}
		if len(result.Documents) > 0 {
			documents, err := values.Keep(result.Documents)
			if err != nil {
				return err
			}
			written = append(written, inject.File{Name: inject.DocumentsFile, Text: documents})
		}
		return writeInto(f.output, written, stderr)
	}
	component, err := kustomize.Component(result.Plans, result.Documents)
	if err != nil {
		return err
	}
	return writeInto(f.as.kustomize, component, stderr)
}

// chartValues are the chart that is asked for, nil if none is, and the values that its release
// has. The options are made those that it can carry out.
func (f *injectFlags) chartValues(o *inject.Options) (*values.Chart, map[string]any, error) {
	if f.as.chart == "" {
		return nil, nil, nil
	}
	chart, err := values.For(f.as.chart)
	if err != nil {
		return nil, nil, err
	}
	if err := chart.Fit(o); err != nil {
		return nil, nil, f.set.Wrong("%v", err)
	}
	var files []inject.File
	for _, name := range f.as.values {
		file, err := readManifest(name)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, file)
	}
	given, err := values.Merge(files)
	return chart, given, err
}

// valuesFile is written beside inject.DocumentsFile.
const valuesFile = "values.yaml"

// earlierRun are the documents that an earlier run has written to the folder of this one. A file
// of ours whose name somebody else's has is an error: it would be replaced.
func (f *injectFlags) earlierRun() (documents []inject.File, err error) {
	folder, names := f.output, []string{inject.DocumentsFile, valuesFile}
	if f.as.kustomize != "" {
		folder, names = f.as.kustomize, []string{kustomize.DocumentsFile, kustomize.KustomizationFile}
	} else if f.as.policy {
		return nil, nil
	}
	for i, base := range names {
		name := filepath.Join(folder, base)
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		text, err := file.Read(name, maxManifest)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc([]string{"# csi-fencepost: begin\n", "# Puts csi-fencepost into "}, func(ours string) bool { return strings.HasPrefix(string(text), ours) }) {
			return nil, fmt.Errorf("%s is not of csi-fencepost inject, and would be replaced: nothing is written; name a folder of its own", name)
		}
		if i == 0 {
			documents = []inject.File{{Name: name, Text: text}}
		}
	}
	return documents, nil
}

func writeInto(folder string, files []inject.File, stderr io.Writer) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, file := range files {
		name := filepath.Join(folder, file.Name)
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

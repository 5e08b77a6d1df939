package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/ledger"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/fitness/setup"
	"github.com/csi-fencepost/csi-fencepost/sanity/fitness/writer"
)

const (
	// badSecret stands in inputs where a secret may stand, or where a person may have
	// put one by mistake. No output may have it.
	badSecret = "hunter2"
	// badPatience is far more than an input takes that is refused before anything is
	// waited for.
	badPatience = 20 * time.Second
	// leastBadInputs is how many the table has to have.
	leastBadInputs = 700
)

// unclear are words of Go and of its libraries. A person who reads an error does not
// know what they mean.
var unclear = []string{"panic", "goroutine", "Go struct", "Go value", "unmarshal", "json:", "jsontext:", "v1.", "interface {}", "strconv.", "%!", "<nil>", "map["}

// A badInput is what somebody may give the program, and is wrong.
type badInput struct {
	args []string // with placeholders: see badWorld.places
	file string   // what is in {file}
	// What stands in the annotation of PersistentVolume pv-1, and of the Lease with the
	// record of node n1; nil: what is right.
	ledger, record *string
}

// started is a command line of the sidecar that is right but for what is given.
func started(args ...string) badInput {
	return badInput{args: append([]string{"run", "--csi-address={driver}", "--listen={listen}", "--kubeconfig={kubeconfig}", "--http-endpoint={taken}"}, args...)}
}

// alone is failover as a process of its own with this in its configuration; without any, mode
// Observe.
func alone(config ...string) badInput {
	if len(config) == 0 {
		config = []string{"mode: Observe"}
	}
	return line("failover", "--config={file}").with("apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\nfailover: {enabled: true}\n" + strings.Join(config, "\n") + "\n")
}

// line is a command line as it is.
func line(args ...string) badInput { return badInput{args: args} }

// asks is the command line of a command that talks to the cluster.
func asks(args ...string) badInput { return line(append(args, "--kubeconfig={kubeconfig}")...) }

// with is the input with a file.
func (in badInput) with(file string) badInput {
	in.file = file
	return in
}

const configHead = "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\n"

// configuration is a configuration file of the sidecar, but for its first two lines.
func configuration(text string) badInput { return started("--config={file}").with(configHead + text) }

// agentOf is a configuration with one fence agent.
func agentOf(text string) badInput {
	in := started("--config={file}", "--agent-dirs={agents}")
	return in.with(configHead + "fencing: {levels: [{agents: [{" + text + "}]}]}")
}

// ledgerIs is a PersistentVolume with that ledger, and a command that has to read it.
func ledgerIs(text string) badInput {
	in := asks("release", "pv", "pv-1", "--node=n1", "--reason=it was unmounted")
	in.ledger = &text
	return in
}

// recordIs is a node with that record, and a command that has to read it.
func recordIs(text string) badInput {
	in := asks("fence", "withdraw", "n1", "--reason=it is back")
	in.record = &text
	return in
}

// injected is a manifest that is given to inject.
func injected(text string, args ...string) badInput {
	return line(append([]string{"inject", "-f", "{file}", "--image=registry.example.com/csi-fencepost:v1", "-o", "{out}"}, args...)...).with(text)
}

func TestABadInputIsRefusedInClearWordsAndNothingIsDone(t *testing.T) {
	if len(badInputs) < leastBadInputs {
		t.Errorf("%d bad inputs, of which there are to be %d at least", len(badInputs), leastBadInputs)
	}
	// The log's flags are applied once in a process. Here it is started many times.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	t.Cleanup(func() { logsapi.ReapplyHandling = logsapi.ReapplyHandlingError })
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	seen := map[string]bool{}
	for i, row := range badInputs {
		name := fmt.Sprintf("%03d", i)
		if key := fmt.Sprintf("%+v %v %v", row.input.args, row.input.file, annotations(row.input)); seen[key] {
			t.Errorf("%s: it is there twice", name)
		} else {
			seen[key] = true
		}
		t.Run(name, func(t *testing.T) {
			w := newBadWorld(t, row.input, taken.Addr().String())
			w.isRefused(t, row.input, row.says)
		})
	}
}

// annotations are those of an input.
func annotations(in badInput) string {
	var all string
	for _, text := range []*string{in.ledger, in.record} {
		if text != nil {
			all += *text
		}
		all += "\n"
	}
	return all
}

// A badWorld is what the program finds: a driver, an API server, files. It sees what the
// program does to them.
type badWorld struct {
	folder string
	api    *clitest.APIServer
	places *strings.Replacer
	called atomic.Int32 // connections to the driver
}

func newBadWorld(t *testing.T, in badInput, taken string) *badWorld {
	t.Helper()
	driver, listen := sockets(t)
	w := &badWorld{folder: filepath.Dir(listen)}
	socket, err := net.Listen("unix", driver)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	go func() {
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			w.called.Add(1)
			conn.Close()
		}
	}()
	api, flag := clitest.NewAPI(t)
	w.api = api
	w.places = strings.NewReplacer("{driver}", driver, "{listen}", listen, "{taken}", taken, "{kubeconfig}", strings.TrimPrefix(flag, "--kubeconfig="),
		"{file}", w.at("input.yaml"), "{out}", w.at("out"), "{agents}", w.at("agents"), "{folder}", w.folder)
	w.files(t, in)
	w.objects(in)
	return w
}

func (w *badWorld) at(name string) string { return filepath.Join(w.folder, name) }

// files are the input's own, and those that it may name.
func (w *badWorld) files(t *testing.T, in badInput) {
	t.Helper()
	for _, folder := range []string{"agents", "agents/folder", "empty"} {
		if err := os.Mkdir(w.at(folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, file := range map[string]struct {
		mode fs.FileMode
		text string
	}{
		"input.yaml":            {0o644, w.places.Replace(in.file)},
		"list.yaml":             {0o644, "- a\n"},
		"good.yaml":             {0o644, configHead + "mode: Observe\n"},
		"array.yaml":            {0o644, badArray},
		"agents/fence_good":     {0o755, "#!/bin/sh\n"},
		"agents/fence_writable": {0o777, "#!/bin/sh\n"},
		"agents/fence_text":     {0o644, "#!/bin/sh\n"},
		"agents/fence_sbd":      {0o755, "#!/bin/sh\n"},
	} {
		if err := os.WriteFile(w.at(name), []byte(file.text), file.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(w.at(name), file.mode); err != nil { // past the umask
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"agents/fence_away": "/bin/sh", "agents/fence_gone": "/no/such/program"} {
		if err := os.Symlink(target, w.at(name)); err != nil {
			t.Fatal(err)
		}
	}
}

// objects are a volume that node n1 holds, and that node's record.
func (w *badWorld) objects(in badInput) {
	w.api.AddNode("n1", "uid-n1", "boot-1", "id-1", clitest.InUse)
	pv := clitest.PV("pv-1", clitest.Entry("id-1", "n1", "uid-n1", "boot-1", fence.Held))
	if in.ledger != nil {
		pv.Annotations[ledger.Annotation] = *in.ledger
	}
	w.api.Put("/api/v1/persistentvolumes/pv-1", pv)
	if in.record == nil {
		return
	}
	name := record.LeaseName("n1")
	w.api.Put("/apis/coordination.k8s.io/v1/namespaces/csi-fencepost/leases/"+name, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "csi-fencepost", UID: "lease-uid", Annotations: map[string]string{record.Annotation: *in.record}}})
}

// isRefused gives the program the input, and holds against it all that may not happen.
func (w *badWorld) isRefused(t *testing.T, in badInput, says string) {
	t.Helper()
	var args []string
	for _, arg := range in.args {
		args = append(args, w.places.Replace(arg))
	}
	ctx, cancel := context.WithTimeout(t.Context(), badPatience)
	defer cancel()
	code, stdout, stderr, paniced := runCatching(ctx, args)
	switch {
	case paniced != "":
		t.Fatalf("%s", paniced)
	case ctx.Err() != nil:
		t.Fatalf("it waits for something before it refuses the input:\n%s", stderr)
	case code == cli.ExitOK:
		t.Fatalf("it is taken:\n%s%s", stdout, stderr)
	}
	if says = w.places.Replace(says); says == "" || !strings.Contains(stderr, says) {
		t.Errorf("it does not say %q:\n%s", says, stderr)
	}
	for _, word := range unclear {
		if strings.Contains(stderr, word) {
			t.Errorf("it says %q, which nobody understands:\n%s", word, stderr)
		}
	}
	if strings.Contains(stdout+stderr, badSecret) {
		t.Errorf("it shows a secret:\n%s%s", stdout, stderr)
	}
	w.isUntouched(t)
}

// isUntouched asserts that nobody was asked, nothing is served and nothing is written.
func (w *badWorld) isUntouched(t *testing.T) {
	t.Helper()
	if n := w.called.Load(); n > 0 {
		t.Errorf("the driver was called %d times", n)
	}
	if w.api.Writes > 0 {
		t.Errorf("%d objects were written", w.api.Writes)
	}
	for _, made := range []string{"fencepost.sock", "out"} {
		if _, err := os.Lstat(w.at(made)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was made: %v", made, err)
		}
	}
}

// runCatching runs the program; paniced is where it panicked.
func runCatching(ctx context.Context, args []string) (code int, stdout, stderr, paniced string) {
	var out, errs strings.Builder
	defer func() {
		if r := recover(); r != nil {
			paniced = fmt.Sprintf("it panicked: %v\n%s", r, debug.Stack())
		}
	}()
	code = runProgram(ctx, args, &out, &errs)
	return code, out.String(), errs.String(), ""
}

// shorthands are how rows of the table give some of the flags.
var shorthands = map[string]string{"--output": "-o", "--filename": "-f", "--namespace": "-n"}

func TestEachFlagIsGivenWhatItDoesNotTake(t *testing.T) {
	right := started().args
	right = append(right, asks().args...)
	given := map[string]bool{}
	for _, row := range badInputs {
		for _, arg := range row.input.args {
			if name, _, _ := strings.Cut(arg, "="); strings.HasPrefix(name, "-") && !slices.Contains(right, arg) {
				given[name] = true
			}
		}
	}
	seen := map[string]bool{}
	var check func(command ...string)
	check = func(command ...string) {
		flags := completed(t, append(command, "--")...)
		if len(flags) == 0 { // it has subcommands
			for _, name := range completed(t, append(command, "")...) {
				check(append(slices.Clone(command), name)...)
			}
		}
		for _, flag := range flags {
			seen[flag] = true
			if !given[flag] && !given[shorthands[flag]] && flag != "--help" {
				t.Errorf("no bad input has %s of %s", flag, strings.Join(command, " "))
			}
		}
	}
	for _, c := range commands() {
		if c.Name != "completion" && c.Name != "version" && c.Name != "sanity" { // these take no flags, or flags of their own
			check(c.Name)
		}
	}
	for _, set := range []*pflag.FlagSet{setup.NewOptions().Set, writer.NewOptions().Set} {
		set.VisitAll(func(flag *pflag.Flag) {
			name := "--" + flag.Name
			seen[name] = true
			if !given[name] && !given[shorthands[name]] {
				t.Errorf("no bad input has %s of %s", name, set.Name())
			}
		})
	}
	if len(seen) < 75 {
		t.Errorf("only %d flags were found", len(seen))
	}
}

// completed are the words that the shell is offered after these.
func completed(t *testing.T, typed ...string) (words []string) {
	t.Helper()
	stdout, _ := commandLine(t, cli.ExitOK, append([]string{"__complete"}, typed...)...)
	for line := range strings.Lines(stdout) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if word != "" && !strings.HasPrefix(word, ":") && strings.HasPrefix(word, "--") == strings.HasPrefix(typed[len(typed)-1], "--") {
			words = append(words, word)
		}
	}
	return words
}

func TestEachFieldOfTheConfigurationIsGivenWhatItDoesNotTake(t *testing.T) {
	var all string
	for _, row := range badInputs {
		all += row.input.file + "\n" + row.says + "\n"
	}
	seen := 0
	var check func(path string, of reflect.Type)
	check = func(path string, of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			check(path, of.Elem())
		case reflect.Struct:
			for i := range of.NumField() {
				name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
				if name == "" {
					continue
				}
				seen++
				if !regexp.MustCompile(`\b` + name + `\b`).MatchString(all) {
					t.Errorf("no bad input has %s.%s", path, name)
				}
				check(path+"."+name, of.Field(i).Type)
			}
		}
	}
	check("", reflect.TypeFor[config.Configuration]())
	if seen < 40 {
		t.Errorf("only %d fields were found", seen)
	}
}

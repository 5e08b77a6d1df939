package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	fenceprogram "github.com/csi-fencepost/csi-fencepost/fence/agent/program"
	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

// Flags are the flags of one subcommand. They are plain pflag, and no framework of commands: a table in
// main finds the subcommand, and what is said of a wrong flag is ours to say.
type Flags struct {
	*pflag.FlagSet
	help string
	// formats that -o takes, the default first; none: there is no -o.
	formats []string
	format  string
}

// NewFlags of the subcommand with that full name; help says what it does.
func NewFlags(command, help string) *Flags {
	f := &Flags{FlagSet: pflag.NewFlagSet(command, pflag.ContinueOnError), help: help}
	f.SortFlags = false
	f.Usage = func() {} // errors are printed once, by Run
	return f
}

// Parse reads flags and arguments, in any order. Its error is the subcommand's:
// a Help with the help and the flags, or a UsageError.
func (f *Flags) Parse(args []string) error {
	switch err := f.FlagSet.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return &Help{text: f.help + "\n\nFlags:\n" + f.FlagUsages(), flags: f.FlagSet, formats: f.formats}
	case err != nil:
		return f.Wrong("%s; csi-fencepost %s --help lists the flags", FlagError(err, f.FlagSet), f.Name())
	case slices.ContainsFunc(f.Args(), func(arg string) bool { return strings.TrimSpace(arg) == "" }):
		return f.Wrong("an argument is empty, where a name belongs: is a variable not set? csi-fencepost %s --help says what it takes", f.Name())
	case len(f.formats) > 0 && !slices.Contains(f.formats, f.format):
		return f.Wrong("--output is %q: it has to be %s", f.format, alternatives(f.formats))
	}
	return nil
}

// FlagError says, of an error of that set's Parse, what a flag's value would have to be, and what a
// flag that there is not may have meant.
func FlagError(err error, set *pflag.FlagSet) string {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		return UnknownFlag(unknown.GetSpecifiedName(), set)
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		if must := MustBe(invalid.GetFlag()); must != "" {
			return fmt.Sprintf("invalid value %q for --%s: %s", invalid.GetValue(), invalid.GetFlag().Name, must)
		}
	}
	return err.Error()
}

// UnknownFlag says that a flag is not known, and what it may have meant.
func UnknownFlag(name string, set *pflag.FlagSet) string {
	var names []string
	set.VisitAll(func(flag *pflag.Flag) { names = append(names, "--"+flag.Name) })
	if near := Like("--"+name, names); len(near) > 0 {
		return fmt.Sprintf("unknown flag: --%s; did you mean %s?", name, strings.Join(near, ", "))
	}
	return "unknown flag: --" + name
}

// MustBe says what the value of a flag of that type has to be; empty: its own error says
// it.
func MustBe(flag *pflag.Flag) string {
	switch flag.Value.Type() {
	case "duration":
		return `it has to be a duration with its unit, such as "15s" or "2m"`
	case "bool":
		return "it has to be true or false"
	case "int", "int32", "int64":
		return "it has to be a whole number"
	case "uint", "uint32":
		return "it has to be a whole number from 0 on"
	case "Level": // that of the log
		return "it has to be a whole number from 0 to 2147483647"
	case "float64":
		return "it has to be a number"
	case "stringToString":
		return "it has to be key=value, several of them separated by commas, such as topology.example.com/zone=a"
	case "quantity": // those of the log
		return "it has to be a number of bytes, also with a unit, such as 4096 or 64Ki"
	case "stringMap": // that of the labels of a CSI sidecar's Lease
		return "it has to be key:value, several of them separated by commas, such as app:csi"
	case "pattern=N,...": // that of the log
		return "it has to be PATTERN=N, N the -v of the files that match, several of them separated by commas, such as run=4,proxy*=6"
	}
	return ""
}

// Wrong is a UsageError that names the subcommand.
func (f *Flags) Wrong(format string, args ...any) error {
	return Usagef("%s: %s", f.Name(), fmt.Sprintf(format, args...))
}

// outputFlag is -o.
const outputFlag = "output"

// Output registers -o, with these formats: text, json or yaml; the first is the
// default.
func (f *Flags) Output(formats ...string) {
	f.formats = formats
	f.StringVarP(&f.format, outputFlag, "o", formats[0], "How to print it: "+alternatives(formats)+".")
}

// Print prints v in the format that -o names; text prints it as text.
func (f *Flags) Print(w io.Writer, v any, text func(io.Writer)) error {
	return PrintAs(w, f.format, v, text)
}

// PrintAs prints v as json or yaml, or as text prints it.
func PrintAs(w io.Writer, format string, v any, text func(io.Writer)) error {
	var out []byte
	var err error
	switch format {
	case "json":
		if out, err = json.MarshalIndent(v, "", "  "); err == nil {
			out = append(printable.JSON(out), '\n')
		}
	case "yaml":
		// By way of JSON, as yaml.Marshal does, which fails of some control characters.
		if out, err = json.Marshal(v); err == nil {
			out, err = yaml.JSONToYAML(printable.JSON(out))
		}
	default:
		text(w)
		return nil
	}
	if err == nil {
		_, err = w.Write(out)
	}
	return err
}

// alternatives are words as a sentence lists them.
func alternatives(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// A FolderList is a flag's list of folders in which fence agents may be,
// absolute, separated by commas. What is given replaces the default.
type FolderList []string

// String implements pflag.Value.
func (l *FolderList) String() string { return strings.Join(*l, ",") }

// Set takes the list apart. Each folder has to be one that may hold fence agents.
func (l *FolderList) Set(value string) error {
	var folders []string
	for folder := range strings.SplitSeq(value, ",") {
		if err := fenceprogram.CheckFolder(folder); err != nil {
			return err
		}
		folders = append(folders, filepath.Clean(folder))
	}
	*l = folders
	return nil
}

// Type implements pflag.Value.
func (l *FolderList) Type() string { return "folders" }

package setup

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/fence/file"
)

// Options are the flags of csi-fencepost sanity.
type Options struct {
	Config
	// JUnitFile and ReportFile are written if they are named.
	JUnitFile, ReportFile string
	// Output is text, json or yaml.
	Output string
	// Verbose shows Ginkgo's own output, with every call.
	Verbose bool
	// Set is the flag set itself, for its help.
	Set *pflag.FlagSet

	size, attributes, parameters, secrets string
}

// ErrHelp tells that only the flags were asked for.
var ErrHelp = pflag.ErrHelp

// NewOptions are the flags with their defaults.
func NewOptions() *Options {
	o := &Options{Config: Default(), Set: pflag.NewFlagSet("sanity", pflag.ContinueOnError)}
	o.Set.SortFlags = false
	o.Set.Usage = func() {}
	s := o.Set
	s.StringVar(&o.Address, "csi-address", "", "The driver's socket, with its Identity and Controller: /path or unix:///path. Required.")
	s.StringSliceVar(&o.NodeIDs, "node-ids", nil, "The IDs, as the driver has them, of two nodes or more, separated by commas. They have to exist. Without it the driver is asked.")
	s.StringVar(&o.UnknownNodeID, "unknown-node-id", "", "The ID of a node that never existed, as the driver would write one. Default: made up.")
	s.StringVar(&o.GoneNodeID, "gone-node-id", "", "The ID of a node that existed and is gone.")
	s.StringVar(&o.RemoveNodeExec, "remove-node-exec", "", "A shell command that removes the machine of node $NODE_ID, for good: the last one of --node-ids.")
	s.StringVar(&o.VolumeHandle, "volume-handle", "", "An existing volume to use, published nowhere. Default: one is created, and deleted afterwards.")
	s.StringVar(&o.attributes, "volume-attributes-file", "", "A YAML file: the volumeAttributes of --volume-handle.")
	s.StringVar(&o.parameters, "volume-parameters-file", "", "A YAML file: the parameters of the StorageClass, for the volume that is created.")
	s.StringVar(&o.size, "volume-size", "1Gi", "The size of the volume that is created.")
	s.StringVar(&o.AccessType, "access-type", o.AccessType, "mount or block.")
	s.StringVar(&o.FSType, "fs-type", "", "The file system of --access-type=mount. Default: the driver's own.")
	s.StringVar(&o.secrets, "secrets-file", "", "A YAML file of secrets, as csi-sanity takes it.")
	s.StringToStringVar(&o.Topology, "topology", nil, "Where the volume has to be created: key=value, separated by commas. Default: what NodeGetInfo says, if the socket has it.")
	s.DurationVar(&o.Timeout, "timeout", o.Timeout, "The deadline of each call, and how long is waited for what has to happen.")
	s.DurationVar(&o.Watch, "watch", o.Watch, "How long is looked for what must not happen.")
	s.IntVar(&o.Rounds, "rounds", o.Rounds, "How many times the concurrent calls are made.")
	s.StringVar(&o.WriterExec, "writer-exec", "", "A shell command that runs a writer on the first node of --node-ids, for example \"ssh n1 csi-fencepost sanity writer --path /dev/sdx\".")
	s.StringVar(&o.WriterAddress, "writer-address", "", "host:port of a writer on the first node of --node-ids.")
	s.StringVar(&o.JUnitFile, "junit-file", "", "The file for the report in JUnit's form.")
	s.StringVar(&o.ReportFile, "report", "", "The file for the report as a person reads it.")
	s.StringVarP(&o.Output, "output", "o", "text", "What goes to standard output: text, json or yaml.")
	s.BoolVarP(&o.Verbose, "verbose", "v", false, "Show every call as it is made, on standard error.")
	return o
}

// Parse reads a command line. ErrHelp if only the flags were asked for; any other
// error names the flag and what would be right.
func Parse(args []string) (*Options, error) {
	o := NewOptions()
	if err := o.Set.Parse(args); IsHelp(err) {
		return o, err
	} else if err != nil {
		return o, errors.New(cli.FlagError(err, o.Set))
	}
	if o.Set.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag, and sanity takes nothing else but the word writer before its flags", o.Set.Arg(0))
	}
	return o, errors.Join(o.read(), o.Check(), o.checkOutput(), o.checkReports())
}

// read reads what the flags name.
func (o *Options) read() error {
	var errs []error
	keep := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	size, err := resource.ParseQuantity(o.size)
	if err != nil {
		err = fmt.Errorf("%q is no size: it has to be a number of bytes, also with a unit, such as 1Gi or 500M", o.size)
	} else {
		o.VolumeSize = size.Value()
	}
	keep("volume-size", err)
	if o.attributes != "" {
		o.VolumeAttributes, err = readMap(o.attributes)
		keep("volume-attributes-file", err)
	}
	if o.parameters != "" {
		o.VolumeParameters, err = readMap(o.parameters)
		keep("volume-parameters-file", err)
	}
	if o.secrets != "" {
		o.Secrets, err = ReadSecrets(o.secrets)
		keep("secrets-file", err)
	}
	return errors.Join(errs...)
}

func (o *Options) checkOutput() error {
	switch o.Output {
	case "text", "json", "yaml":
		return nil
	}
	return fmt.Errorf("-o is %q: it has to be text, json or yaml", o.Output)
}

// checkReports refuses a report that would be written over what is read, or over another report.
func (o *Options) checkReports() error {
	var errs []error
	read := []string{"volume-attributes-file", "volume-parameters-file", "secrets-file"}
	for _, report := range []string{"junit-file", "report"} {
		path := o.Set.Lookup(report).Value.String()
		for _, other := range read {
			if path != "" && file.Same(path, o.Set.Lookup(other).Value.String()) {
				errs = append(errs, fmt.Errorf("--%s and --%s are one file, %s, which the report would be written over: name another one", report, other, path))
			}
		}
		read = append(read, report)
	}
	return errors.Join(errs...)
}

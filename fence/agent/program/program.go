package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// DefaultDirs are where programs may be if Options name no folder.
var DefaultDirs = []string{"/usr/sbin"}

// Options of a Program.
type Options struct {
	// Name by which the agent is configured and reported.
	Name string
	// Agent is the program: a name, looked for in Dirs, or an absolute path.
	Agent string
	// Parameters are the same for all nodes, but for what $(NODE), $(NODE_ID),
	// $(PROVIDER_ID), $(INSTANCE_ID) (the last part of the provider ID) and
	// $(SYSTEM_UUID) in them stand for: plain names, no more than 512 bytes long.
	Parameters map[string]string
	// ParameterFiles hold a parameter's value each; they are read at each use,
	// and everything in them is a secret. $(NODE) in a path stands for the node's name.
	ParameterFiles map[string]string
	// NodeParameters by parameter and node name.
	NodeParameters map[string]map[string]string
	// AcceptSuspended tells that the user knows that the program calls a suspended machine off, and
	// sees to it that nobody resumes one.
	AcceptSuspended bool
	// Dirs are the folders that programs are allowed in, each as CheckFolder has
	// it; none: DefaultDirs.
	Dirs []string
}

// Program is an agent.Agent and agent.Checker. It is safe for concurrent use.
type Program struct {
	o    Options
	path string
	meta metadataCache
}

var (
	_ agent.Agent   = (*Program)(nil)
	_ agent.Checker = (*Program)(nil)
	_ agent.Seeker  = (*Program)(nil)
)

// New checks what can be told without running the program.
func New(o Options) (*Program, error) {
	if o.Name == "" {
		return nil, errors.New("a fence agent needs a name")
	}
	if len(o.Dirs) == 0 {
		o.Dirs = DefaultDirs
	}
	var path string
	err := checkFolders(o.Dirs)
	if err == nil {
		path, err = find(o.Agent, o.Dirs)
	}
	if err == nil {
		_, err = inspect(path, o.Dirs)
	}
	if err == nil {
		err = o.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("fence agent %s: %w", o.Name, err)
	}
	return &Program{o: o, path: path, meta: newMetadataCache()}, nil
}

// Name implements agent.Agent.
func (p *Program) Name() string { return p.o.Name }

// proveTime bounds the program's metadata for a caller without a ctx.
const proveTime = 10 * time.Second

// Proves implements agent.Agent: a storage agent cuts a node off from its
// disks, every other one from its power. It may run the program for its
// metadata; where that cannot be read nothing is proven, and Status fails.
func (p *Program) Proves() fence.Kind {
	if StorageByName(p.path) {
		return fence.StorageFence
	}
	ctx, cancel := context.WithTimeout(context.Background(), proveTime)
	defer cancel()
	if meta, _, err := p.metadata(ctx); err == nil && meta.storage() {
		return fence.StorageFence
	}
	return fence.PowerReading
}

// Covers implements agent.Agent.
func (p *Program) Covers(node string) bool { return p.o.Covers(node) }

// Covers tells which nodes are meant, wherever the program is: each of NodeParameters names
// the node, or there are none and a parameter is made of what tells nodes apart.
func (o *Options) Covers(node string) bool {
	for _, values := range o.NodeParameters {
		if _, ok := values[node]; !ok {
			return false
		}
	}
	return node != ""
}

// Seeks implements agent.Seeker.
func (p *Program) Seeks(node string) []string { return p.o.Seeks(node) }

// Seeks are the variables that stand for what a node says of its machine, wherever the program
// is. A person names the node.
func (o *Options) Seeks(node string) (names []string) {
	values := slices.Collect(maps.Values(o.Parameters))
	for _, of := range o.NodeParameters {
		if node == "" {
			values = slices.AppendSeq(values, maps.Values(of))
		} else {
			values = append(values, of[node])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if name != varNode && slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, "$("+name+")") }) {
			names = append(names, name)
		}
	}
	return names
}

// Status implements agent.Agent.
func (p *Program) Status(ctx context.Context, m agent.Machine) (agent.Reading, error) {
	c, err := p.prepare(ctx, "status", m)
	if err != nil {
		return agent.Reading{}, p.wrap(err)
	}
	res, err := c.run(ctx)
	reading := agent.Reading{Detail: c.secrets.detail(res)}
	if err != nil {
		return reading, p.wrap(err)
	}
	if reading.State, reading.Checked, err = read(res, m); err != nil {
		return reading, p.wrap(fmt.Errorf("%w: %s", err, reading.Detail))
	}
	return reading, nil
}

// Off implements agent.Agent.
func (p *Program) Off(ctx context.Context, m agent.Machine) (string, error) {
	return p.act(ctx, "off", m)
}

// On implements agent.Agent. It fails for a program that can only be unfenced
// on the fenced machine itself (fence_scsi).
func (p *Program) On(ctx context.Context, m agent.Machine) (string, error) {
	return p.act(ctx, "on", m)
}

func (p *Program) act(ctx context.Context, action string, m agent.Machine) (string, error) {
	c, err := p.prepare(ctx, action, m)
	if err != nil {
		return "", p.wrap(err)
	}
	res, err := c.run(ctx)
	detail := c.secrets.detail(res)
	if err == nil {
		_, err = identified(res.out.text, m)
	}
	if err == nil && res.code != 0 {
		err = fmt.Errorf("action %s: %s", action, detail)
	}
	return detail, p.wrap(err)
}

// Check implements agent.Checker. It reads the metadata and the status.
func (p *Program) Check(ctx context.Context, m agent.Machine) (device string, faults []error) {
	meta, _, err := p.metadata(ctx)
	if err != nil {
		return "", []error{p.wrap(err)}
	}
	for _, err := range meta.check(p.o) {
		faults = append(faults, p.wrap(err))
	}
	if why := agent.Withheld(p, m); why != "" {
		return "", append(faults, p.wrap(errors.New(why)))
	}
	params, err := p.o.forMachine(m, meta)
	if err != nil {
		return "", append(faults, p.wrap(err))
	}
	device = p.path + " " + params.device()
	if len(faults) > 0 {
		return device, faults
	}
	if _, err := p.Status(ctx, m); err != nil {
		faults = append(faults, err)
	}
	return device, faults
}

// prepare makes a call that is checked throughout.
func (p *Program) prepare(ctx context.Context, action string, m agent.Machine) (*call, error) {
	if !p.Covers(m.Node) {
		return nil, fmt.Errorf("it is not configured for node %q", m.Node)
	}
	meta, path, err := p.metadata(ctx)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(meta.check(p.o)...); err != nil {
		return nil, err
	}
	if err := meta.can(action); err != nil {
		return nil, err
	}
	params, err := p.o.forMachine(m, meta)
	if err != nil {
		return nil, err
	}
	return &call{path: path, stdin: params.stdin(action), secrets: params.secrets()}, nil
}

func (p *Program) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("fence agent %s (%s): %w", p.o.Name, cmp.Or(p.path, p.o.Agent), err)
}

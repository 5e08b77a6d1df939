package program

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence/nearest"
)

// metadata is what a program says of itself.
type metadata struct {
	// aliases are a parameter's names as the program lists them, each with the one that is in use
	// today (plug for port).
	aliases map[string]string
	actions map[string]action
	// actionKeys are parameters that name an action.
	actionKeys map[string]bool
	// choices are parameters whose value is one of a few, or a time.
	choices map[string]bool
	fabric  bool
	name    string
}

type action struct {
	Name      string `xml:"name,attr"`
	Automatic string `xml:"automatic,attr"`
	OnTarget  string `xml:"on_target,attr"`
}

type metadataXML struct {
	XMLName xml.Name `xml:"resource-agent"`
	Name    string   `xml:"name,attr"`
	Fabric  string   `xml:"fabric_fencing,attr"`
	Params  []struct {
		Name      string `xml:"name,attr"`
		Obsoletes string `xml:"obsoletes,attr"`
		Getopt    struct {
			Mixed string `xml:"mixed,attr"`
		} `xml:"getopt"`
		Content struct {
			Type string `xml:"type,attr"`
		} `xml:"content"`
	} `xml:"parameters>parameter"`
	Actions []struct {
		action
		Fabric string `xml:"fabric_fencing,attr"`
	} `xml:"actions>action"`
}

// actionOption is how a program's usage shows the option that names an action.
var actionOption = regexp.MustCompile(`(^|[\s,])(-o|--action|--option)\b`)

// parseMetadata reads the XML. A program that cannot be used for a fence with
// proof is an error.
func parseMetadata(text string) (*metadata, error) {
	var doc metadataXML
	if err := xml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, fmt.Errorf("its metadata are not readable: %w", err)
	}
	m := &metadata{
		aliases: map[string]string{}, actions: map[string]action{}, actionKeys: map[string]bool{}, choices: map[string]bool{},
		fabric: yes(doc.Fabric), name: strings.TrimSuffix(doc.Name, ".py"),
	}
	for _, p := range doc.Params {
		name := plain(p.Name)
		if name == "" {
			continue
		}
		m.aliases[name] = cmp.Or(m.aliases[name], name)
		if old := plain(p.Obsoletes); old != "" {
			m.aliases[old] = name
		}
		if actionOption.MatchString(p.Getopt.Mixed) {
			m.actionKeys[name] = true
		}
		m.choices[name] = slices.Contains([]string{"boolean", "select", "second"}, p.Content.Type)
	}
	for _, a := range doc.Actions {
		m.actions[a.Name] = a.action
		m.fabric = m.fabric || yes(a.Fabric)
	}
	if why, no := refused[doc.Name]; no {
		return nil, fmt.Errorf("it calls itself %s, which is not used: %s", doc.Name, why)
	}
	for _, name := range []string{"off", "status"} {
		if err := m.can(name); err != nil {
			return nil, fmt.Errorf("it cannot prove a fence: %w", err)
		}
	}
	return m, nil
}

func yes(attribute string) bool {
	return slices.Contains([]string{"1", "true", "yes"}, strings.ToLower(attribute))
}

// storage tells whether the program cuts off disks and not the power, as one does that has to
// unfence a node at its boot, or that has to run on the node for it.
func (m *metadata) storage() bool {
	on := m.actions["on"]
	return m.fabric || yes(on.Automatic) || yes(on.OnTarget)
}

func (m *metadata) can(name string) error {
	a, ok := m.actions[name]
	if !ok {
		return fmt.Errorf("its metadata list no action %s, only %s", name,
			cmp.Or(strings.Join(slices.Sorted(maps.Keys(m.actions)), ", "), "none at all"))
	}
	if name == "on" && yes(a.OnTarget) {
		return errors.New("action on works only on the fenced machine itself, which does it when it boots")
	}
	return nil
}

// check holds the configured keys against the metadata.
func (m *metadata) check(o Options) (errs []error) {
	if callsSuspendedOff[m.name] && !o.AcceptSuspended {
		errs = append(errs, fmt.Errorf("%s reads a suspended machine as off, and a suspended machine can be resumed and write: "+
			"see to it that nobody resumes machines, and say so (exec.acceptSuspended: true)", m.name))
	}
	given := map[string]string{}
	keys := slices.Concat(slices.Collect(maps.Keys(o.Parameters)),
		slices.Collect(maps.Keys(o.ParameterFiles)), slices.Collect(maps.Keys(o.NodeParameters)))
	slices.Sort(keys)
	for _, key := range keys {
		name, ok := m.aliases[plain(key)]
		if !ok {
			errs = append(errs, fmt.Errorf("it knows no parameter %q; %s", key, m.nearest(plain(key))))
			continue
		}
		if m.actionKeys[plain(key)] || m.actionKeys[name] {
			errs = append(errs, fmt.Errorf("parameter %q is not allowed: %s", key, reserved["action"]))
		}
		if other, twice := given[name]; twice {
			errs = append(errs, fmt.Errorf("parameters %q and %q are the same to it: give one", other, key))
		}
		given[name] = key
	}
	errs = append(errs, o.checkOwn(m.name)...)
	if _, ok := m.aliases["systems_uri"]; ok && given["systems_uri"] == "" {
		errs = append(errs, errNoSystem)
	}
	return errs
}

// nearest names up to three known parameters that may have been meant.
func (m *metadata) nearest(key string) string {
	known := slices.DeleteFunc(slices.Collect(maps.Keys(m.aliases)), func(name string) bool { return reserved[name] != "" || m.actionKeys[name] })
	near := nearest.Names(key, known, math.MaxInt)
	if len(near) == 0 {
		return "it lists none"
	}
	return "the nearest it knows: " + strings.Join(near, ", ")
}

// metadataCache keeps the metadata of one version of the file.
type metadataCache struct {
	// turn is held while the cache is looked at and filled.
	turn chan struct{}
	kept *keptMetadata
}

type keptMetadata struct {
	of   identity
	meta *metadata
}

func newMetadataCache() metadataCache {
	return metadataCache{turn: make(chan struct{}, 1), kept: &keptMetadata{}}
}

// metadata of the program as it is now, and the path to run it by. It is run
// for them before its first use, and when the file has changed.
func (p *Program) metadata(ctx context.Context) (*metadata, string, error) {
	select {
	case p.meta.turn <- struct{}{}:
		defer func() { <-p.meta.turn }()
	case <-ctx.Done():
		return nil, "", fmt.Errorf("waiting for its metadata: %w", ctx.Err())
	}
	is, err := inspect(p.path, p.o.Dirs)
	if err != nil {
		return nil, "", err
	}
	if kept := p.meta.kept; kept.meta != nil && kept.of == is {
		return kept.meta, p.path, nil
	}
	res, err := (&call{path: p.path, args: []string{"-o", "metadata"}}).run(ctx)
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("its metadata: %w", err)
	case res.code != 0:
		return nil, "", fmt.Errorf("its metadata: %s", secrets(nil).detail(res))
	case res.out.cut:
		return nil, "", fmt.Errorf("its metadata are longer than %d bytes", maxOutput)
	}
	meta, err := parseMetadata(res.out.text)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", filepath.Base(p.path), err)
	}
	*p.meta.kept = keptMetadata{is, meta}
	return meta, p.path, nil
}

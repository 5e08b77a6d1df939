package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/csi-fencepost/csi-fencepost/csi/addons"
	"github.com/csi-fencepost/csi-fencepost/fence/file"
)

const (
	minTimeout  = time.Second
	maxTimeout  = 2 * time.Minute
	maxAttempts = 10
	// minPoll is the shortest poll: before that the next answer tells nothing more, and a BMC is
	// busy with each.
	minPoll = time.Second
	maxPoll = 3 * time.Second // it is seen to go off only within 5 s of a reading of on, answer included
	// maxPrograms a second: one in Python takes 0.2 s of a core, and 25 MB while it waits.
	maxPrograms = 20
)

// omit stands in errors for a value that may be a secret, or that was written
// where a secret's file belongs.
var omit = field.OmitValueType{}

func validateLevels(path *field.Path, levels []Level) (faults field.ErrorList) {
	names := map[string]bool{}
	var storage *CSIAddons
	var said *field.Path // where storage was
	for i, level := range levels {
		agents := path.Index(i).Child("agents")
		if len(level.Agents) == 0 {
			faults = append(faults, field.Required(agents, "a level needs an agent"))
		}
		faults = append(faults, level.validatePoll(agents)...)
		if i > 0 && level.polled() && !levels[i-1].polled() {
			faults = append(faults, field.Forbidden(agents, "a level with poll comes before those without: of the levels that cover a node the first is polled, or none"))
		}
		for j := range level.Agents {
			a := &level.Agents[j]
			faults = append(faults, a.validate(agents.Index(j))...)
			if names[a.Name] && a.Name != "" {
				faults = append(faults, field.Duplicate(agents.Index(j).Child("name"), a.Name))
			}
			names[a.Name] = true
			switch here := agents.Index(j).Child("csiAddons"); {
			case a.CSIAddons == nil:
			case storage == nil:
				storage, said = a.CSIAddons, here
			case !reflect.DeepEqual(storage, a.CSIAddons):
				faults = append(faults, field.Invalid(here, omit, "must say the same as "+said.String()+": both are fences of the one driver on --csi-address"))
			}
		}
	}
	return faults
}

func (a *Agent) validate(path *field.Path) (faults field.ErrorList) {
	switch problems := validation.IsDNS1123Label(a.Name); {
	case a.Name == "":
		faults = append(faults, field.Required(path.Child("name"), "metrics, records and messages name the agent by it"))
	case len(problems) > 0:
		faults = append(faults, field.Invalid(path.Child("name"), a.Name, strings.Join(problems, "; ")))
	}
	faults = append(faults, a.validateTries(path)...)
	kinds := 0
	if a.IPMI != nil {
		kinds++
		faults = append(faults, a.IPMI.validate(path.Child("ipmi"))...)
	}
	if a.Exec != nil {
		kinds++
		faults = append(faults, a.Exec.validate(path.Child("exec"))...)
	}
	if a.CSIAddons != nil {
		kinds++
		faults = append(faults, a.CSIAddons.validate(path.Child("csiAddons"))...)
	}
	if kinds != 1 {
		faults = append(faults, field.Invalid(path, omit, fmt.Sprintf("must have exactly one of ipmi, exec and csiAddons, and has %d", kinds)))
	}
	return faults
}

func (l *Level) polled() bool {
	return slices.ContainsFunc(l.Agents, func(a Agent) bool { return a.Poll.Duration != 0 })
}

// validatePoll refuses a level of which only some agents are polled: what these read says nothing
// without the others.
func (l *Level) validatePoll(path *field.Path) (faults field.ErrorList) {
	for i := range l.Agents {
		a, poll := &l.Agents[i], path.Index(i).Child("poll")
		switch {
		case a.Poll.check() != "":
			faults = append(faults, field.Invalid(poll, a.Poll.written(), a.Poll.check()))
		case a.Poll.Duration != 0 && a.CSIAddons != nil:
			faults = append(faults, field.Invalid(poll, a.Poll.String(), "is for agents that read the power of a machine, and csiAddons cuts it off from its storage"))
		case a.Poll.Duration != 0 && a.Exec != nil && filepath.Base(a.Exec.Agent) == "fence_fencepost_hcloud":
			faults = append(faults, field.Invalid(poll, a.Poll.String(), "is not for Hetzner Cloud, which answers 3600 requests an hour to all of a project: one node asked every 3s takes 1200, three leave nothing to the CSI driver and to fencing"))
		case a.Poll.Duration != 0 && (a.Poll.Duration < minPoll || a.Poll.Duration > maxPoll):
			faults = append(faults, field.Invalid(poll, a.Poll.String(), "must be 0s (never) or from 1s to 3s"))
		case a.Poll.Duration == 0 && l.polled():
			faults = append(faults, field.Required(poll, "another agent of this level is polled, and a machine is off only if all of a level read off"))
		}
	}
	return faults
}

func (a *Agent) validateTries(path *field.Path) (faults field.ErrorList) {
	switch timeout := path.Child("timeout"); {
	case a.Timeout.check() != "":
		faults = append(faults, field.Invalid(timeout, a.Timeout.written(), a.Timeout.check()))
	case a.Timeout.Duration < minTimeout, a.Timeout.Duration > maxTimeout:
		faults = append(faults, field.Invalid(timeout, a.Timeout.String(), "must be from 1s to 2m"))
	}
	if a.Attempts < 1 || a.Attempts > maxAttempts {
		faults = append(faults, field.Invalid(path.Child("attempts"), a.Attempts, fmt.Sprintf("must be from 1 to %d", maxAttempts)))
	}
	return faults
}

func (i *IPMI) validate(path *field.Path) (faults field.ErrorList) {
	faults = append(faults, absolute(path.Child("usernameFile"), i.UsernameFile)...)
	faults = append(faults, absolute(path.Child("passwordFile"), i.PasswordFile)...)
	nodes := path.Child("nodes")
	if len(i.Nodes) == 0 {
		faults = append(faults, field.Required(nodes, "the BMC of each node, such as n1: \"10.1.0.11:623\""))
	}
	for _, node := range slices.Sorted(maps.Keys(i.Nodes)) {
		faults = append(faults, nodeName(nodes, node)...)
		if !hostPort(i.Nodes[node]) {
			faults = append(faults, field.Invalid(nodes.Key(node), i.Nodes[node], "must be host:port of its BMC, such as \"10.1.0.11:623\" or \"[fd00::11]:623\""))
		}
	}
	return faults
}

func (c *CSIAddons) validate(path *field.Path) (faults field.ErrorList) {
	if c.Addresses != "" {
		faults = append(faults, oneOf(path.Child("addresses"), c.Addresses, DriverOrNode, DriverOnly)...)
		if c.Nodes != nil {
			faults = append(faults, field.Invalid(path.Child("addresses"), c.Addresses, "must be left out where nodes declares the addresses: nobody else is asked"))
		}
	}
	var subnets []netip.Prefix
	for i, text := range c.AllowedSubnets {
		here := path.Child("allowedSubnets").Index(i)
		subnet, err := netip.ParsePrefix(text)
		switch {
		case err != nil || subnet.Addr().Is4In6():
			faults = append(faults, field.Invalid(here, text, "must be a CIDR block, such as \"10.20.0.0/16\" or \"fd00:20::/64\""))
		case subnet != subnet.Masked():
			faults = append(faults, field.Invalid(here, text, fmt.Sprintf("has bits beyond its length: the block is %q, the address alone %q", subnet.Masked(), addons.HostBlock(subnet.Addr()))))
		}
		subnets = append(subnets, subnet)
	}
	return append(faults, c.validateNodes(path, subnets)...)
}

func (c *CSIAddons) validateNodes(path *field.Path, subnets []netip.Prefix) (faults field.ErrorList) {
	nodes := path.Child("nodes")
	if c.Nodes != nil && len(c.Nodes) == 0 {
		faults = append(faults, field.Required(nodes, "the addresses of each node on the storage network, such as n1: [\"10.20.0.11\"]; leave it out if the driver or the Nodes say them"))
	}
	owner := map[netip.Prefix]string{}
	for _, node := range slices.Sorted(maps.Keys(c.Nodes)) {
		faults = append(faults, nodeName(nodes, node)...)
		if len(c.Nodes[node]) == 0 {
			faults = append(faults, field.Required(nodes.Key(node), "its addresses on the storage network, such as [\"10.20.0.11\"]"))
		}
		for i, text := range c.Nodes[node] {
			here := nodes.Key(node).Index(i)
			host, err := addons.ParseHost(text)
			switch {
			case err != nil:
				faults = append(faults, field.Invalid(here, text, "must be one IP address, such as \"10.20.0.11\": "+err.Error()))
				continue
			case owner[host] != "" && owner[host] != node:
				faults = append(faults, field.Invalid(here, text, "is an address of node "+owner[host]+" too: a fence of the one would cut off the other"))
			case len(subnets) > 0 && !addons.Covers(subnets, host):
				faults = append(faults, field.Invalid(here, text, "is outside "+path.Child("allowedSubnets").String()))
			}
			owner[host] = node
		}
	}
	return faults
}

// hostPort tells whether s is an address or name with a port.
func hostPort(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	number, err := strconv.Atoi(port)
	if err != nil || len(validation.IsValidPortNum(number)) > 0 {
		return false
	}
	return net.ParseIP(host) != nil || len(validation.IsDNS1123Subdomain(strings.ToLower(host))) == 0
}

func absolute(path *field.Path, name string) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "the absolute path of a file")}
	case !filepath.IsAbs(name):
		return field.ErrorList{field.Invalid(path, omit, "must be the absolute path of a file")}
	case strings.Contains(strings.ReplaceAll(name, file.Node, ""), "$("):
		return field.ErrorList{field.Invalid(path, omit, "has a variable that is not known in the path of a file: only "+file.Node+" is, which stands for the node's name")}
	}
	return nil
}

func nodeName(path *field.Path, node string) field.ErrorList {
	if problems := validation.IsDNS1123Subdomain(node); len(problems) > 0 {
		return field.ErrorList{field.Invalid(path, node, "is no name of a Node: "+strings.Join(problems, "; "))}
	}
	return nil
}

func (e *Exec) validate(path *field.Path) (faults field.ErrorList) {
	switch agent := path.Child("agent"); {
	case e.Agent == "":
		faults = append(faults, field.Required(agent, "the program: a name such as fence_ipmilan, or an absolute path"))
	case strings.Contains(e.Agent, "/") && (!filepath.IsAbs(e.Agent) || filepath.Clean(e.Agent) != e.Agent), e.Agent == ".", e.Agent == "..":
		faults = append(faults, field.Invalid(agent, e.Agent, "must be a name without a slash, or an absolute path without . and .."))
	}
	seen := map[string]string{}
	key := func(group *field.Path, name string) {
		faults = append(faults, parameter(group, name, seen)...)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Parameters)) {
		key(path.Child("parameters"), name)
		faults = append(faults, oneLine(path.Child("parameters").Key(name), e.Parameters[name])...)
	}
	for _, name := range slices.Sorted(maps.Keys(e.ParameterFiles)) {
		key(path.Child("parameterFiles"), name)
		faults = append(faults, absolute(path.Child("parameterFiles").Key(name), e.ParameterFiles[name])...)
	}
	group := path.Child("nodeParameters")
	for _, name := range slices.Sorted(maps.Keys(e.NodeParameters)) {
		key(group, name)
		faults = append(faults, nodeValues(group.Key(name), e.NodeParameters[name])...)
	}
	if len(e.NodeParameters) == 0 && !e.tellsNodesApart() {
		faults = append(faults, field.Required(group, "what tells the agent one node from another, such as port: {n1: \"3\"}, or a parameter with $(NODE) or $(INSTANCE_ID); without it every node would be the same machine"))
	}
	return faults
}

// tellsNodesApart tells whether a parameter has a variable in it. Which ones there are is for the
// agent to say.
func (e *Exec) tellsNodesApart() bool {
	for _, value := range e.Parameters {
		if strings.Contains(value, "$(") {
			return true
		}
	}
	return false
}

func nodeValues(path *field.Path, values map[string]string) (faults field.ErrorList) {
	if len(values) == 0 {
		faults = append(faults, field.Required(path, "the value for each node, such as n1: \"3\""))
	}
	for _, node := range slices.Sorted(maps.Keys(values)) {
		faults = append(faults, nodeName(path, node)...)
		faults = append(faults, oneLine(path.Key(node), values[node])...)
	}
	return faults
}

// parameterName is what fence agents take on standard input before the =.
var parameterName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// parameter judges the name of a parameter. seen remembers where each stands:
// agents take - and _ for the same.
func parameter(group *field.Path, name string, seen map[string]string) (faults field.ErrorList) {
	same := strings.ReplaceAll(strings.ToLower(name), "-", "_")
	switch same {
	case "action", "option", "method":
		return field.ErrorList{field.Forbidden(group.Key(name), "what is done is for csi-fencepost to say: it sends an explicit action each time")}
	}
	if !parameterName.MatchString(name) {
		return field.ErrorList{field.Invalid(group, name, "is no name of a parameter: letters, digits, _ and - are")}
	}
	if other := seen[same]; other != "" {
		faults = append(faults, field.Invalid(group.Key(name), omit, "is given in "+other+" too"))
	}
	seen[same] = group.Key(name).String()
	return faults
}

// oneLine refuses a line break, which would begin another parameter, an action for example.
func oneLine(path *field.Path, value string) field.ErrorList {
	if strings.ContainsAny(value, "\n\r\x00") {
		return field.ErrorList{field.Invalid(path, omit, "must be one line")}
	}
	return nil
}

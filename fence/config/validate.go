package config

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// minSuspectAfter leaves room for a kubelet that renews its lease every 10 seconds; with less
	// than that and some for the way, every living node looks stale now and then.
	minSuspectAfter = 12 * time.Second
	// maxSuspectAfter is above the 6 minutes of Kubernetes' own force detach, which are long.
	maxSuspectAfter = 10 * time.Minute
	// minFenceAfter is Kubernetes' own node-monitor-grace-period: nobody
	// should be turned off whom Kubernetes still takes for Ready.
	minFenceAfter = 50 * time.Second
	maxOffFor     = time.Minute
	maxPolls      = 1000
)

// Validate returns all faults, each with the path of its field.
func (c *Configuration) Validate() field.ErrorList {
	return c.ValidateWith(len(c.Fencing.Levels) > 0)
}

// ValidateWith is Validate for a program that brings fence agents of its own, or has
// none, whatever fencing.levels names.
func (c *Configuration) ValidateWith(agents bool) field.ErrorList {
	faults := oneOf(field.NewPath("mode"), c.Mode, Enforce, Observe)
	if c.Unpublish.Unfenced != "" {
		faults = append(faults, oneOf(field.NewPath("unpublish", "unfenced"), c.Unpublish.Unfenced, Refuse, Forward)...)
	}
	if n := c.Driver.MaxConcurrentCalls; n < 0 {
		faults = append(faults, field.Invalid(field.NewPath("driver", "maxConcurrentCalls"), n, "must be 0 (no bound) or more"))
	}
	faults = append(faults, c.Fencing.validate(field.NewPath("fencing"), agents)...)
	faults = append(faults, c.Failover.validate(field.NewPath("failover"))...)
	if !agents && !c.Fencing.Apart && c.stuck() {
		faults = append(faults, field.Required(field.NewPath("unpublish", "unfenced"),
			"mode is Enforce, no source in evidence is switched on (networkFence alone does not count: most clusters have none; nor does kubelet, which a dead node does not answer) and fencing.levels names no agent, so nothing could ever free a volume of a dead node; "+
				"switch one on (outOfServiceTaint, operatorConfirmation), name an agent, or say Refuse or Forward here to show that it is meant"))
	}
	return append(faults, c.idle()...)
}

// idle are the faults of a configuration that asks for what only the failover does, which is
// switched off.
func (c *Configuration) idle() (faults field.ErrorList) {
	if c.Failover.Enabled {
		return nil
	}
	path := field.NewPath("fencing")
	if c.Fencing.FenceAfter.Duration > 0 {
		faults = append(faults, field.Invalid(path.Child("fenceAfter"), c.Fencing.FenceAfter.String(), "needs failover.enabled: true; without it the agents are asked, and nobody is fenced"))
	}
	if c.Fencing.PowerOn == WhenMoved {
		faults = append(faults, field.Invalid(path.Child("powerOn"), c.Fencing.PowerOn, "needs failover.enabled: true"))
	}
	if c.Fencing.polls(false) {
		faults = append(faults, field.Invalid(path.Child("levels"), field.OmitValueType{}, "an agent has poll, which needs failover.enabled: true: failover is what asks it"))
	}
	return faults
}

// stuck tells whether nothing could ever unblock a dead node's volumes, without an agent, and
// nobody said that it is meant.
func (c *Configuration) stuck() bool {
	return c.Mode == Enforce && c.Unpublish.Unfenced == "" && !c.Driver.UnpublishRevokesAccess && !c.Evidence.any()
}

func (f *Fencing) validate(path *field.Path, agents bool) (faults field.ErrorList) {
	for _, text := range validation.IsDNS1123Label(f.Namespace) {
		faults = append(faults, field.Invalid(path.Child("namespace"), f.Namespace, text))
	}
	faults = append(faults, f.validateTimes(path, agents)...)
	if f.MaxUnhealthy < 0 || f.MaxUnhealthy > 100 {
		faults = append(faults, field.Invalid(path.Child("maxUnhealthy"), field.OmitValueType{}, `must be a percentage from "0%" to "100%", such as "40%"`))
	}
	if f.MaxConcurrent < 1 {
		faults = append(faults, field.Invalid(path.Child("maxConcurrent"), f.MaxConcurrent, "must be at least 1"))
	}
	switch polls := path.Child("pollsPerSecond"); {
	case f.PollsPerSecond < 1 || f.PollsPerSecond > maxPolls:
		faults = append(faults, field.Invalid(polls, f.PollsPerSecond, "must be from 1 to 1000; without poll at an agent nothing is asked because of it"))
	case f.PollsPerSecond > maxPrograms && f.polls(true):
		faults = append(faults, field.Invalid(polls, f.PollsPerSecond, "must be from 1 to 20 where a program (exec) is polled: each question is a process"))
	}
	faults = append(faults, oneOf(path.Child("powerOn"), f.PowerOn, Never, WhenMoved)...)
	if f.Apart {
		faults = append(faults, f.validateApart(path)...)
	}
	return append(faults, validateLevels(path.Child("levels"), f.Levels)...)
}

func (f *Failover) validate(path *field.Path) field.ErrorList {
	switch off := path.Child("offFor"); {
	case f.OffFor.check() != "":
		return field.ErrorList{field.Invalid(off, f.OffFor.written(), f.OffFor.check())}
	case f.OffFor.Duration < 0 || f.OffFor.Duration > maxOffFor:
		return field.ErrorList{field.Invalid(off, f.OffFor.String(), "must be from 0s to 1m: once the lease is silent nothing waits for it any more")}
	}
	return nil
}

// validateApart refuses what reads or switches power, which is not this sidecar's.
func (f *Fencing) validateApart(path *field.Path) (faults field.ErrorList) {
	const elsewhere = "fencing.apart: true says that csi-fencepost failover reads and cuts the power of nodes: "
	if f.PowerOn == WhenMoved {
		faults = append(faults, field.Invalid(path.Child("powerOn"), f.PowerOn, elsewhere+"it is for that to switch on"))
	}
	for i, level := range f.Levels {
		for j, a := range level.Agents {
			if a.IPMI != nil || a.Exec != nil {
				faults = append(faults, field.Forbidden(path.Child("levels").Index(i).Child("agents").Index(j),
					elsewhere+"agent "+a.Name+" belongs into its configuration, and only csiAddons may stay here"))
			}
		}
	}
	return faults
}

func (f *Fencing) validateTimes(path *field.Path, agents bool) (faults field.ErrorList) {
	suspect, fence := path.Child("suspectAfter"), path.Child("fenceAfter")
	invalid := func(p *field.Path, d Duration, text string) {
		faults = append(faults, field.Invalid(p, d.written(), text))
	}
	switch {
	case f.SuspectAfter.check() != "":
		invalid(suspect, f.SuspectAfter, f.SuspectAfter.check())
	case f.SuspectAfter.Duration == 0:
	case f.SuspectAfter.Duration < minSuspectAfter:
		invalid(suspect, f.SuspectAfter, "must be 0s (as each lease says) or at least 12s: a kubelet renews its lease every 10s, so that a living node would look stale")
	case f.SuspectAfter.Duration > maxSuspectAfter:
		invalid(suspect, f.SuspectAfter, "must be at most 10m: for so long each volume of a dead node waits")
	}
	switch {
	case f.FenceAfter.check() != "":
		invalid(fence, f.FenceAfter, f.FenceAfter.check())
	case f.FenceAfter.Duration == 0:
	case f.FenceAfter.Duration < minFenceAfter:
		invalid(fence, f.FenceAfter, "must be 0s (never) or at least 50s: until then Kubernetes itself takes the node for Ready")
	case f.FenceAfter.Duration <= f.SuspectAfter.Duration:
		invalid(fence, f.FenceAfter, "must be longer than suspectAfter")
	case !agents:
		invalid(fence, f.FenceAfter, "needs a fence agent: name one in fencing.levels, or leave it out")
	}
	return faults
}

// kubernetesOwn are the namespaces that every cluster has. Leases of others are in them.
var kubernetesOwn = []string{metav1.NamespaceSystem, metav1.NamespacePublic, metav1.NamespaceDefault, corev1.NamespaceNodeLease}

// CheckNamespace is an error where the nodes' records would be in a namespace of
// Kubernetes' own. Whoever may write Leases there, as every program that elects its leader
// there may, could claim that a node is fenced; and the policy that holds against that
// (deploy/admission/records.yaml) would stop the leaders and kubelets whose Leases are
// there too. Commands do not ask it: they are needed to move away from there.
func (c *Configuration) CheckNamespace() error {
	if ns := c.Fencing.Namespace; slices.Contains(kubernetesOwn, ns) {
		return field.Invalid(field.NewPath("fencing", "namespace"), ns, "is a namespace of Kubernetes itself, in which others write Leases: whoever may could claim that a node is fenced, and a policy against that would stop their leader election. "+
			"The nodes' records need one of their own, such as "+Default().Fencing.Namespace+" (deploy/rbac/namespace.yaml); docs/use/upgrade.md#records-in-another-namespace says how to move them")
	}
	return nil
}

// CheckRun is what a sidecar has to ask besides Validate. In mode Observe, which writes no
// record, nothing is asked.
func (c *Configuration) CheckRun() error {
	if c.Mode == Observe {
		return nil
	}
	return c.CheckNamespace()
}

// CheckApart is what failover as a process of its own (csi-fencepost failover) has to ask besides
// Validate, in place of CheckRun: that it is switched on, and that nothing is set which would have
// no effect there, since it is a guard's, or one driver's.
func (c *Configuration) CheckApart() error {
	byDefault, faults := Default(), field.ErrorList{}
	idle := func(is bool, path string, value any, text string) {
		if is {
			faults = append(faults, field.Invalid(field.NewPath(path), value, text))
		}
	}
	const guards = "has no effect here: the guards decide by it, so it belongs into the configuration of the drivers' sidecars"
	idle(!c.Failover.Enabled, "failover.enabled", c.Failover.Enabled, "must be true: failover is all that this process does")
	idle(c.Mode != byDefault.Mode, "mode", c.Mode, "must be left out: failover has one mode, and without fencing.fenceAfter it turns nothing off")
	idle(c.Driver != byDefault.Driver, "driver", field.OmitValueType{}, guards)
	idle(c.Unpublish != byDefault.Unpublish, "unpublish", field.OmitValueType{}, guards)
	evidence := c.Evidence
	evidence.OperatorConfirmation = byDefault.Evidence.OperatorConfirmation
	idle(evidence != byDefault.Evidence, "evidence", field.OmitValueType{}, "of it operatorConfirmation alone has an effect here: by all else the guards decide, so it belongs into the configuration of the drivers' sidecars")
	for i, level := range c.Fencing.Levels {
		for j, a := range level.Agents {
			idle(a.CSIAddons != nil, fmt.Sprintf("fencing.levels[%d].agents[%d].csiAddons", i, j), a.Name, "cuts off the storage of one driver, on its socket: such an agent belongs into the sidecar of that driver")
		}
	}
	if err := c.CheckNamespace(); err != nil {
		return errors.Join(faults.ToAggregate(), err)
	}
	return faults.ToAggregate()
}

func oneOf[T ~string](path *field.Path, value T, valid ...T) field.ErrorList {
	for _, v := range valid {
		if v == value {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, valid)}
}

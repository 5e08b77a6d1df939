package main

import (
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/fence/source"
)

// sourceInputs are what the evidence sources are made of.
type sourceInputs struct {
	config  *config.Configuration
	driver  string
	records source.Records
	// objects reads those of others (NetworkFence and the like); of any group.
	objects rest.Interface
	// fencing is nil where no agent is to be asked.
	fencing *fencing
}

// evidenceSources are those that the configuration switches on.
type evidenceSources struct {
	all []source.Source
	// records that what is seen is bound in.
	records *record.Store
	// taints and remediations have to be seen when they appear.
	taints       []*source.Taint
	remediations []*source.Remediation
	// claims are those that failover acts on by itself: a person's explicit word.
	claims []source.Source
}

func newSources(in sourceInputs) *evidenceSources {
	e, s := in.config.Evidence, &evidenceSources{records: in.records.Store}
	if e.OutOfServiceTaint {
		s.taints = append(s.taints, source.OutOfServiceTaint(in.records))
	}
	if e.CloudShutdownTaint {
		s.taints = append(s.taints, source.CloudShutdownTaint(in.records))
	}
	for _, t := range s.taints {
		s.all = append(s.all, t)
	}
	if e.OperatorConfirmation {
		s.claims = []source.Source{source.Confirmations(in.records)}
		s.all = append(s.all, s.claims[0], source.Releases())
	}
	if e.NodeDeleted {
		s.all = append(s.all, source.NodeDeleted{})
	}
	if e.FenceAgentsRemediation {
		s.remediations = append(s.remediations, source.FenceAgentsRemediations(in.objects, in.records))
	}
	if e.SelfNodeRemediation {
		s.remediations = append(s.remediations, source.SelfNodeRemediations(in.objects, in.records))
	}
	for _, r := range s.remediations {
		s.all = append(s.all, r)
	}
	if in.fencing == nil {
		s.all = append(s.all, source.Fences(nil))
		return s
	}
	s.all = append(s.all, source.Agents(in.fencing.fencer), source.Fences(in.fencing.fencer))
	if e.NetworkFence && in.fencing.storage != nil {
		s.all = append(s.all, source.NetworkFences(in.driver, in.objects, in.fencing.storage))
	}
	return s
}

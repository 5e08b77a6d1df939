package main

import (
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// sourceInputs are what the evidence sources are made of.
type sourceInputs struct {
	config  *config.Configuration
	driver  string
	records evidence.Records
	// objects reads those of others (NetworkFence and the like); of any group.
	objects rest.Interface
	// fencing is nil where no agent is to be asked.
	fencing *fencing
}

// evidenceSources are those that the configuration switches on.
type evidenceSources struct {
	all []evidence.Source
	// records that what is seen is bound in.
	records *record.Store
	// taints and remediations have to be seen when they appear.
	taints       []*evidence.Taint
	remediations []*evidence.Remediation
	// claims are those that failover acts on by itself: a person's explicit word.
	claims []evidence.Source
}

func newSources(in sourceInputs) *evidenceSources {
	e, s := in.config.Evidence, &evidenceSources{records: in.records.Store}
	if e.OutOfServiceTaint {
		s.taints = append(s.taints, evidence.OutOfServiceTaint(in.records))
	}
	if e.CloudShutdownTaint {
		s.taints = append(s.taints, evidence.CloudShutdownTaint(in.records))
	}
	for _, t := range s.taints {
		s.all = append(s.all, t)
	}
	if e.OperatorConfirmation {
		s.claims = []evidence.Source{evidence.Confirmations(in.records)}
		s.all = append(s.all, s.claims[0], evidence.Releases())
	}
	if e.NodeDeleted {
		s.all = append(s.all, evidence.NodeDeleted{})
	}
	if e.FenceAgentsRemediation {
		s.remediations = append(s.remediations, evidence.FenceAgentsRemediations(in.objects, in.records))
	}
	if e.SelfNodeRemediation {
		s.remediations = append(s.remediations, evidence.SelfNodeRemediations(in.objects, in.records))
	}
	for _, r := range s.remediations {
		s.all = append(s.all, r)
	}
	if in.fencing == nil {
		s.all = append(s.all, evidence.Fences(nil))
		return s
	}
	s.all = append(s.all, evidence.Agents(in.fencing.fencer), evidence.Fences(in.fencing.fencer))
	if e.NetworkFence && in.fencing.storage != nil {
		s.all = append(s.all, evidence.NetworkFences(in.driver, in.objects, in.fencing.storage))
	}
	return s
}

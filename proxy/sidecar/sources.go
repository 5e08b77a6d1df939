package sidecar

import (
	"k8s.io/client-go/rest"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/evidence"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// SourceOptions are what the evidence sources are made of.
type SourceOptions struct {
	Config  *config.Configuration
	driver  string
	Records evidence.Records
	// Objects reads those of others (NetworkFence and the like); of any group.
	Objects rest.Interface
	// fencing is nil where no agent is to be asked.
	fencing *fencing
}

// EvidenceSources are those that the configuration switches on.
type EvidenceSources struct {
	All []evidence.Source
	// Records that what is seen is bound in.
	records *record.Store
	// taints and remediations have to be seen when they appear.
	taints       []*evidence.Taint
	remediations []*evidence.Remediation
	// claims are those that failover acts on by itself: a person's explicit word.
	claims []evidence.Source
}

func NewSources(in SourceOptions) *EvidenceSources {
	e, s := in.Config.Evidence, &EvidenceSources{records: in.Records.Store}
	if e.OutOfServiceTaint {
		s.taints = append(s.taints, evidence.OutOfServiceTaint(in.Records))
	}
	if e.CloudShutdownTaint {
		s.taints = append(s.taints, evidence.CloudShutdownTaint(in.Records))
	}
	for _, t := range s.taints {
		s.All = append(s.All, t)
	}
	if e.OperatorConfirmation {
		s.claims = []evidence.Source{evidence.Confirmations(in.Records)}
		s.All = append(s.All, s.claims[0], evidence.Releases(in.Records))
	}
	if e.NodeDeleted {
		s.All = append(s.All, evidence.NodeDeleted{})
	}
	if e.FenceAgentsRemediation {
		s.remediations = append(s.remediations, evidence.FenceAgentsRemediations(in.Objects, in.Records))
	}
	if e.SelfNodeRemediation {
		s.remediations = append(s.remediations, evidence.SelfNodeRemediations(in.Objects, in.Records))
	}
	for _, r := range s.remediations {
		s.All = append(s.All, r)
	}
	if in.fencing == nil {
		s.All = append(s.All, evidence.Fences(nil))
		return s
	}
	s.All = append(s.All, evidence.Agents(in.fencing.asker()), evidence.Fences(in.fencing.asker()))
	if e.NetworkFence && in.fencing.storage != nil {
		s.All = append(s.All, evidence.NetworkFences(in.driver, in.Objects, in.fencing.storage))
	}
	return s
}

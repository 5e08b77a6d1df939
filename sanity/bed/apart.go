package bed

import (
	"strings"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// StartApart starts csi-fencepost failover, under the account and with the rights of
// deploy/failover, for the drivers of this stage and of others, with those levels of agents and
// more fields of its configuration's fencing, as StartFailover takes them. Alone, it starts nothing.
func (s *Stage) StartApart(levels string, others []*Stage, fencing ...string) *controlplane.Process {
	s.T.Helper()
	if s.Options.Alone {
		return nil
	}
	args := []string{"--leader-election", "--leader-election-namespace=" + deploy.ApartNamespace, "--driver=" + s.Driver}
	for _, other := range others {
		args = append(args, "--driver="+other.Driver)
	}
	return s.LaunchApart(failoverConfig(levels, fencing), args...)
}

// LaunchApart starts it with that configuration, without its head, and these flags.
func (s *Stage) LaunchApart(config string, args ...string) *controlplane.Process {
	s.T.Helper()
	manifests, err := deploy.Apart(deploy.Names{Namespace: s.Name, ServiceAccount: controllerAccount, Driver: s.Driver})
	s.must("RBAC of deploy/failover", err)
	s.Apply(manifests)
	kubeconfig, err := s.Bed.Cluster.ServiceAccountKubeconfig(s.ctx(), deploy.ApartNamespace, deploy.ApartAccount)
	s.must("token of failover's service account", err)
	file := s.Write("apart.yaml", "apiVersion: csi-fencepost.io/v1alpha1\nkind: Configuration\n"+config+"\n", 0o644)
	return s.endingWithStage("csi-fencepost failover")(s.Bed.Cluster.StartProcess(controlplane.ProcessOptions{
		Name: s.Name + "-apart", Path: s.program(), Restart: true,
		Args: append([]string{"failover", "--kubeconfig=" + kubeconfig, "--config=" + file, "--v=4"}, args...),
	}))
}

// failoverConfig is failover.enabled with what StartFailover is given.
func failoverConfig(levels string, fencing []string) string {
	lines := append([]string{"levels: " + levels}, fencing...)
	if levels == "" {
		lines = lines[1:]
	}
	if !strings.Contains(strings.Join(lines, ""), "maxUnhealthy") {
		lines = append(lines, "maxUnhealthy: 100%") // other stages' dead nodes are no storm
	}
	return "\nfailover: {enabled: true}\nfencing:\n  " + strings.Join(lines, "\n  ")
}

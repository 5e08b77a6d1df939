package values

import (
	"fmt"
	"slices"
	"strings"
)

// A Chart is what is known of a vendor's chart, or of what else an installation is described by.
type Chart struct {
	// Name as --as-values takes it, and Source of what is said here.
	Name, Source string
	// Missing says what the chart has no value for, so that values alone cannot do it; empty: it
	// has all three.
	Missing string
	// Containers is the list of values that go to the pod's containers, or, where Native, to its
	// init containers; Volumes that of its volumes; Args that of the attacher's arguments, which
	// stand behind the chart's own.
	Containers, Volumes, Args path
	Native                    bool
	// Own are the names of containers that the chart itself puts into the list of the pod.
	Own []string
	// Patches is the list of kustomize patches of a custom resource, in place of all of these.
	Patches path
	Kind    string // of that resource
}

// A path leads to a value, by dots.
type path string

func (p path) words() []string { return strings.Split(string(p), ".") }

var charts = []Chart{
	{
		Name:       "aws-ebs",
		Source:     "kubernetes-sigs/aws-ebs-csi-driver charts/aws-ebs-csi-driver 2.64.0, templates/controller.yaml",
		Containers: "controller.initContainers", Volumes: "controller.volumes", Args: "sidecars.attacher.additionalArgs",
		Native: true,
	},
	{
		Name:       "proxmox",
		Source:     "sergelogvinov/proxmox-csi-plugin charts/proxmox-csi-plugin 0.3.12, templates/controller-deployment.yaml",
		Containers: "initContainers", Volumes: "extraVolumes", Args: "controller.attacher.args",
		Native: true,
	},
	{
		Name:       "democratic-csi",
		Source:     "democratic-csi/charts stable/democratic-csi 0.15.1, templates/controller.yaml and _helpers.tpl",
		Containers: "controller.extraContainers", Volumes: "controller.extraVolumes", Args: "controller.externalAttacher.extraArgs",
		Own: []string{"external-attacher", "external-provisioner", "external-resizer", "external-snapshotter", "external-health-monitor-controller", "csi-driver", "csi-proxy"},
	},
	{
		Name:    "linstor",
		Source:  "piraeusdatastore/piraeus-operator api/v1/linstorcluster_types.go",
		Patches: "spec.patches", Kind: "LinstorCluster",
	},
	{
		Name:    "hcloud",
		Source:  "hetznercloud/csi-driver chart/templates/controller/deployment.yaml",
		Missing: "arguments of the attacher. Moving the driver's socket instead, with a second CSI_ENDPOINT in controller.extraEnvVars, would not last: of two variables of one name Kubernetes may keep the chart's when it merges them, and then nothing is guarded",
	},
	{
		Name:    "cinder",
		Source:  "kubernetes/cloud-provider-openstack charts/cinder-csi-plugin, templates/controllerplugin-deployment.yaml",
		Missing: "containers or init containers of the controller (it has csi.attacher.extraArgs and csi.plugin.volumes)",
	},
}

// Names are the charts that can be asked for, those included that cannot do it.
func Names() (names []string) {
	for i := range charts {
		names = append(names, charts[i].Name)
	}
	slices.Sort(names)
	return names
}

// otherWays work with every chart.
const otherWays = "What works with every chart is csi-fencepost inject as Helm's post-renderer, or --as-kustomize on what helm template prints"

// For returns the chart of that name. An error says which there are, or what this one lacks, and
// which way works instead.
func For(name string) (*Chart, error) {
	at := slices.IndexFunc(charts, func(c Chart) bool { return c.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("no chart is known as %q; there are: %s. %s", name, strings.Join(Names(), ", "), otherWays)
	}
	c := &charts[at]
	if c.Missing != "" {
		return nil, fmt.Errorf("the chart of %s cannot put csi-fencepost in by values: it has no value for %s (%s). %s", c.Name, c.Missing, c.Source, otherWays)
	}
	return c, nil
}

package scenarios

import (
	"fmt"
	"strings"
)

// Case is a failure that users of Kubernetes' storage have reported in public:
// the mechanism in our words, and where it was told.
type Case struct {
	What string
	// Refs are owner/repository#number on GitHub (k/number for
	// kubernetes/kubernetes), or addresses of pages.
	Refs []string
}

// Cases are all that a story's `from` may name, and each is named by a story.
var Cases = []Case{
	{"a node cut off by firewall rules while its disk stays attached (Azure Disk)", []string{"https://portworx.com/debugging-errors-kubernetes-azure-network-partition/"}},
	{"kubelet stopped, Node deleted, VolumeAttachment deleted by hand because six minutes are long (OpenEBS cStor)", []string{"https://openebs.io/blog/recover-from-volume-multi-attach-error-in-on-prem-kubernetes-clusters/"}},
	{"a StatefulSet whose Node is deleted while its machine still has the disk: even the force detach ends in \"Failed to add disk\" until the disk is detached by hand (vSphere)", []string{"https://cormachogan.com/2019/06/18/kubernetes-storage-on-vsphere-101-failure-scenarios/", "k/71829", "k/75738"}},
	{"a PostgreSQL whose pod is Unknown, deleted by force; the shutdown taint that automates it (OpenShift on AWS EBS)", []string{"https://jstakun.blogspot.com/2019/07"}},

	{"a node powered off or crashed, Multi-Attach, stuck", []string{"k/65392", "k/50944", "hetznercloud/csi-driver#164"}},
	{"the six minutes are hard-coded and too slow", []string{"k/68086", "k/129805", "kubernetes-sigs/aws-ebs-csi-driver#1955"}},
	{"the Node is deleted before the detach, and its VolumeAttachment is stuck", []string{"kubernetes-sigs/vsphere-csi-driver#359", "kubernetes-csi/external-attacher#215"}},
	{"a volume attached elsewhere with no usable VolumeAttachment", []string{"kubernetes-sigs/vsphere-csi-driver#2506", "k/80488"}},
	{"the force detach of a live node corrupts data", []string{"k/120328"}},
	{"a partition: the old pod still writes while its replacement starts", []string{"k/61832"}},
	{"the driver's unpublish fails when the node or its machine is gone", []string{"NetApp/trident#691", "kubernetes-sigs/vsphere-csi-driver#526"}},
	{"a publish silently moves the volume, and the stale VolumeAttachment is in a deadlock", []string{"cloudscale-ch/csi-cloudscale#143"}},
	{"a node flaps, or is back in the middle of the cleanup", []string{"piraeusdatastore/linstor-csi#89", "k/119273"}},
	{"back-off keeps a volume that is ready waiting for five minutes", []string{"longhorn/longhorn-manager#5171"}},
	{"an outage of the storage's control plane is taken for a failure of nodes, and all of them are tainted", []string{"dell/csm#1766", "dell/csm#765"}},
	{"the fence's taint is never taken off", []string{"dell/csm#1828"}},
	{"an out-of-service taint on a healthy node, or taken off without a power cycle", []string{"ceph/ceph-csi#5409", "rook/rook#17790"}},
	{"the fence hits the wrong client or address", []string{"rook/rook#14832", "rook/rook#7954"}},
	{"a node made anew under the same name; the wrong node ID", []string{"deckhouse/yandex-csi-driver#6", "k/67853"}},
	{"a node renamed, and its VolumeAttachments stuck for ever", []string{"kubernetes/cloud-provider-openstack#1003"}},
	{"an attach that timed out was taken as final, and leaves an orphan attachment", []string{"kubernetes-sigs/vsphere-csi-driver#4192"}},
	{"a change of the controller-manager's leader detaches volumes in use", []string{"k/104169"}},
	{"the controller reports a detach that the driver never saw", []string{"k/116663"}},
	{"duplicate or late ControllerUnpublishVolume", []string{"kubernetes-csi/external-attacher#587"}},
	{"a deleted VolumeAttachment is made again for the old node", []string{"k/106151"}},
	{"the PersistentVolume is gone, and the detach goes round in circles", []string{"kubernetes-csi/external-attacher#235"}},
	{"ListVolumes says detached, the VolumeAttachment says attached", []string{"kubernetes-csi/external-attacher#416", "kubernetes-csi/external-attacher#697"}},
	{"KubeVirt's live migration of a RWX block volume: two publishes that are right", []string{"democratic-csi/democratic-csi#285"}},
}

// Address is where a reference leads to.
func Address(ref string) (string, error) {
	if strings.HasPrefix(ref, "https://") {
		return ref, nil
	}
	if number, ok := strings.CutPrefix(ref, "k/"); ok {
		ref = "kubernetes/kubernetes#" + number
	}
	repository, number, ok := strings.Cut(ref, "#")
	owner, name, slash := strings.Cut(repository, "/")
	if !ok || !slash || owner == "" || name == "" || strings.Trim(number, "0123456789") != "" || number == "" {
		return "", fmt.Errorf("%q is neither owner/repository#number, k/number nor an address that begins with https://", ref)
	}
	return "https://github.com/" + repository + "/issues/" + number, nil
}

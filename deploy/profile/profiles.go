package profile

// profiles of the drivers. A fact that was not read in its source stays out:
// unknown is the safe answer.
var profiles = []Profile{
	{
		Name:           "AWS EBS",
		Drivers:        []string{"ebs.csi.aws.com"},
		Images:         []string{"aws-ebs-csi-driver"},
		Publishes:      Fact{Yes, "kubernetes-sigs/aws-ebs-csi-driver pkg/driver/controller.go, controllerCaps"},
		RevokesAccess:  Fact{No, "EC2 API reference, DetachVolume: while the instance has it mounted, the volume may stay busy until it is unmounted, forced or rebooted"},
		ListsPublished: Fact{No, "kubernetes-sigs/aws-ebs-csi-driver pkg/driver/controller.go, ListVolumes is not implemented"},
		Notes:          []string{"the cloud can say that an instance is stopped or terminated: a fence agent with fence_aws asks it"},
	},
	{
		Name:    "Azure Disk",
		Drivers: []string{"disk.csi.azure.com"},
		Images:  []string{"azuredisk-csi"},
		// ListsPublished depends on --enable-list-volumes (same file).
		Publishes: Fact{Yes, "kubernetes-sigs/azuredisk-csi-driver pkg/azuredisk/azuredisk.go, controllerCap"},
	},
	{
		Name:           "GCE Persistent Disk",
		Drivers:        []string{"pd.csi.storage.gke.io"},
		Images:         []string{"gcp-compute-persistent-disk-csi-driver"},
		Publishes:      Fact{Yes, "kubernetes-sigs/gcp-compute-persistent-disk-csi-driver pkg/gce-pd-csi-driver/gce-pd-driver.go, csc"},
		ListsPublished: Fact{Yes, "the same: LIST_VOLUMES_PUBLISHED_NODES"},
		Notes:          []string{"GKE runs the controller where nobody can edit it: this is for clusters that run the driver themselves"},
	},
	{
		Name:      "vSphere",
		Drivers:   []string{"csi.vsphere.vmware.com"},
		Images:    []string{"vsphere-csi-driver"},
		Publishes: Fact{Yes, "kubernetes-sigs/vsphere-csi-driver pkg/csi/service/vanilla/controller.go, ControllerServiceCapability"},
		Notes:     []string{"unpublish may fail while the VM is gone or cannot be reached (kubernetes-sigs/vsphere-csi-driver#526): the volume then moves when it succeeds"},
	},
	{
		Name:      "OpenStack Cinder",
		Drivers:   []string{"cinder.csi.openstack.org"},
		Images:    []string{"cinder-csi-plugin"},
		Publishes: Fact{Yes, "kubernetes/cloud-provider-openstack pkg/csi/cinder/driver.go, AddControllerServiceCapabilities"},
	},
	{
		Name:           "Hetzner Cloud",
		Drivers:        []string{"csi.hetzner.cloud"},
		Images:         []string{"hcloud-csi-driver"},
		Publishes:      Fact{Yes, "hetznercloud/csi-driver internal/driver/controller.go, ControllerGetCapabilities"},
		ListsPublished: Fact{No, "the same: LIST_VOLUMES without LIST_VOLUMES_PUBLISHED_NODES"},
	},
	{
		Name:      "DigitalOcean Block Storage",
		Drivers:   []string{"dobs.csi.digitalocean.com"},
		Images:    []string{"do-csi-plugin"},
		Publishes: Fact{Yes, "digitalocean/csi-digitalocean driver/controller.go, ControllerPublishVolume attaches the volume to a Droplet"},
		Notes:     []string{"DigitalOcean's managed Kubernetes runs the controller where nobody can edit it: this is for clusters that run the driver themselves"},
	},
	{
		Name:      "OpenEBS cStor",
		Drivers:   []string{"cstor.csi.openebs.io"},
		Images:    []string{"cstor-csi-driver"},
		Publishes: Fact{No, "the CSIDriver object in OpenEBS' cstor-operator.yaml has attachRequired: false"},
	},
	{
		Name: "Ceph RBD",
		// Rook puts its operator's namespace before the name.
		Drivers:    []string{"rbd.csi.ceph.com", ".rbd.csi.ceph.com"},
		Publishes:  Fact{Yes, "ceph/ceph-csi deploy/rbd/kubernetes/csidriver.yaml, attachRequired: true"},
		TaintFirst: Fact{Yes, "ceph/ceph-csi#5409: ControllerUnpublishVolume blocklists the client only when the node has the out-of-service taint"},
	},
	{
		Name:    "hostpath (for tests)",
		Drivers: []string{"hostpath.csi.k8s.io"},
		Images:  []string{"hostpathplugin"},
		// Publishes depends on --enable-attach.
		Notes: []string{"it publishes volumes only with --enable-attach (kubernetes-csi/csi-driver-host-path); without, there is nothing to guard"},
	},
}

package profile

// clouds attach a volume to a machine that is theirs.
var clouds = []Profile{
	{
		Name:           "AWS EBS",
		Drivers:        []string{"ebs.csi.aws.com"},
		Images:         []string{"aws-ebs-csi-driver"},
		Read:           "v1.64.0-4-g429e202e of 2026-08-19",
		Publishes:      Fact{Yes, "kubernetes-sigs/aws-ebs-csi-driver pkg/driver/controller.go, controllerCaps"},
		RevokesAccess:  Fact{No, "EC2 API reference, DetachVolume: while the instance has it mounted, the volume may stay busy until it is unmounted, forced or rebooted"},
		ListsPublished: Fact{No, "kubernetes-sigs/aws-ebs-csi-driver pkg/driver/controller.go, ListVolumes is not implemented"},
		Notes: []Note{
			{"the cloud can say that an instance is stopped: a fence agent with fence_aws asks it, to which a terminated one is unknown, and not off", "ClusterLabs/fence-agents agents/aws/fence_aws.py, get_power_status, at 0056992"},
			{"unpublish answers OK where EC2 does not find the instance or the attachment, and where it calls the state of the volume incorrect", "kubernetes-sigs/aws-ebs-csi-driver pkg/cloud/cloud.go, DetachDisk"},
			{"EKS Auto Mode has a driver of its own, ebs.csi.eks.amazonaws.com, of which this profile says nothing", "awsdocs/amazon-eks-user-guide latest/ug/automode/create-storage-class.adoc, provisioner"},
		},
	},
	{
		Name:    "Azure Disk",
		Drivers: []string{"disk.csi.azure.com"},
		Images:  []string{"azuredisk-csi"},
		Read:    "v1.34.0-381-gd983d613b of 2026-08-22",
		// ListsPublished depends on --enable-list-volumes, which is off by default
		// (pkg/azuredisk/azuredisk_option.go).
		Publishes: Fact{Yes, "kubernetes-sigs/azuredisk-csi-driver pkg/azuredisk/azuredisk.go, controllerCap"},
		Notes: []Note{
			{"its publish moves a disk by itself: one that is attached to another node without a VolumeAttachment there is detached from it and attached to the new one", "kubernetes-sigs/azuredisk-csi-driver pkg/azuredisk/controllerserver.go, ControllerPublishVolume, DanglingAttachError"},
		},
	},
	{
		Name:           "GCE Persistent Disk",
		Drivers:        []string{"pd.csi.storage.gke.io"},
		Images:         []string{"gcp-compute-persistent-disk-csi-driver"},
		Read:           "v1.26.0-94-gb560165c of 2026-08-18",
		Publishes:      Fact{Yes, "kubernetes-sigs/gcp-compute-persistent-disk-csi-driver pkg/gce-pd-csi-driver/gce-pd-driver.go, csc"},
		ListsPublished: Fact{Yes, "kubernetes-sigs/gcp-compute-persistent-disk-csi-driver pkg/gce-pd-csi-driver/gce-pd-driver.go, csc: LIST_VOLUMES_PUBLISHED_NODES, from the disks' users, with an empty ID beside each (controller.go, disksAndInstancesToVolumeEntries)"},
		Notes: []Note{
			{"GKE deploys and manages the driver: this is for clusters that run it themselves", "kubernetes-sigs/gcp-compute-persistent-disk-csi-driver README.md, WARNING"},
			{"a regional disk of availability-class regional-hard-failover is attached by force, away from whoever has it", "kubernetes-sigs/gcp-compute-persistent-disk-csi-driver pkg/parameters/parameters.go, ParameterAvailabilityClass"},
			{"unpublish answers OK where the instance is not found", "kubernetes-sigs/gcp-compute-persistent-disk-csi-driver pkg/gce-pd-csi-driver/controller.go, executeControllerUnpublishVolume"},
		},
	},
	{
		Name:           "OpenStack Cinder",
		Drivers:        []string{"cinder.csi.openstack.org"},
		Images:         []string{"cinder-csi-plugin"},
		Read:           "openstack-cinder-csi-2.36.0-11-gc453fb7c9 of 2026-07-15",
		Publishes:      Fact{Yes, "kubernetes/cloud-provider-openstack pkg/csi/cinder/driver.go, AddControllerServiceCapabilities"},
		ListsPublished: Fact{Yes, "kubernetes/cloud-provider-openstack pkg/csi/cinder/controllerserver.go, createVolumeEntries: the attachments that Cinder has"},
		Notes: []Note{
			{"unpublish answers OK where Nova does not find the instance", "kubernetes/cloud-provider-openstack pkg/csi/cinder/controllerserver.go, ControllerUnpublishVolume"},
		},
	},
	{
		Name:           "Hetzner Cloud",
		Drivers:        []string{"csi.hetzner.cloud"},
		Images:         []string{"hcloud-csi-driver"},
		Read:           "v2.22.1-14-g53ead0b of 2026-08-21",
		Publishes:      Fact{Yes, "hetznercloud/csi-driver internal/driver/controller.go, ControllerGetCapabilities"},
		ListsPublished: Fact{No, "hetznercloud/csi-driver internal/driver/controller.go, ControllerGetCapabilities: LIST_VOLUMES without LIST_VOLUMES_PUBLISHED_NODES"},
	},
	{
		Name:           "DigitalOcean Block Storage",
		Drivers:        []string{"dobs.csi.digitalocean.com"},
		Images:         []string{"do-csi-plugin"},
		Read:           "v4.14.0-5-g0711283d of 2026-01-19",
		Publishes:      Fact{Yes, "digitalocean/csi-digitalocean driver/controller.go, ControllerPublishVolume attaches the volume to a Droplet"},
		ListsPublished: Fact{Yes, "digitalocean/csi-digitalocean driver/controller.go, ListVolumes: the DropletIDs that the cloud has"},
		Notes: []Note{
			{"DigitalOcean's managed Kubernetes comes with the driver: this is for clusters that run it themselves", "digitalocean/csi-digitalocean README.md, Installing to Kubernetes"},
			{"a publish that the cloud refuses because the volume is attached already answers OK, to whichever Droplet that is", "digitalocean/csi-digitalocean driver/controller.go, ControllerPublishVolume, StatusUnprocessableEntity"},
			{"unpublish answers OK where the Droplet or the attachment is not found", "digitalocean/csi-digitalocean driver/controller.go, ControllerUnpublishVolume"},
		},
	},
	{
		Name:           "Linode Block Storage",
		Drivers:        []string{"linodebs.csi.linode.com"},
		Images:         []string{"linode-blockstorage-csi-driver"},
		Read:           "helm-v1.1.4-4-gdef6be4 of 2026-07-23",
		Publishes:      Fact{Yes, "linode/linode-blockstorage-csi-driver internal/driver/capabilities.go, ControllerServiceCapabilities"},
		ListsPublished: Fact{Yes, "linode/linode-blockstorage-csi-driver internal/driver/controllerserver.go, getVolumeResponse: the LinodeID that the cloud has"},
		Notes: []Note{
			{"unpublish for another Linode than the one that has the volume answers OK and detaches nothing; the detach itself names no Linode", "linode/linode-blockstorage-csi-driver internal/driver/controllerserver.go, ControllerUnpublishVolume"},
		},
	},
	{
		Name:           "Vultr Block Storage",
		Drivers:        []string{"block.csi.vultr.com"},
		Images:         []string{"vultr-csi"},
		Read:           "v0.18.0 of 2026-03-06",
		Publishes:      Fact{Yes, "vultr/vultr-csi driver/controller.go, ControllerGetCapabilities"},
		ListsPublished: Fact{No, "vultr/vultr-csi driver/controller.go, ControllerGetCapabilities: LIST_VOLUMES without LIST_VOLUMES_PUBLISHED_NODES"},
		Notes: []Note{
			{"unpublish answers OK where its look at the attachments fails, for whatever reason, and the disk may still be attached", "vultr/vultr-csi driver/controller.go, ControllerUnpublishVolume"},
		},
	},
	{
		Name:           "Scaleway Block Storage",
		Drivers:        []string{"csi.scaleway.com"},
		Images:         []string{"scaleway-csi"},
		Read:           "v0.3.6 of 2026-07-17",
		Publishes:      Fact{Yes, "scaleway/scaleway-csi pkg/driver/controller.go, controllerCapabilities"},
		ListsPublished: Fact{Yes, "scaleway/scaleway-csi pkg/driver/helpers.go, publishedNodeIDs: the volume's references that the cloud has"},
		Notes: []Note{
			{"unpublish detaches the volume from whichever server has it: a late one for the old node takes it from the new one", "scaleway/scaleway-csi pkg/driver/controller.go, ControllerUnpublishVolume, and pkg/scaleway/instance.go, DetachVolume"},
			{"unpublish answers OK where the server is not found", "scaleway/scaleway-csi pkg/driver/controller.go, ControllerUnpublishVolume"},
			{"in Scaleway's managed Kubernetes it is installed already: this is for clusters that run it themselves", "scaleway/scaleway-csi README.md, Kubernetes, WARNING"},
		},
	},
	{
		Name:           "Exoscale Block Storage",
		Drivers:        []string{"csi.exoscale.com"},
		Read:           "v0.34.3 of 2026-07-02",
		Publishes:      Fact{Yes, "exoscale/exoscale-csi-driver driver/controller.go, controllerCapabilities"},
		ListsPublished: Fact{Yes, "exoscale/exoscale-csi-driver driver/controller.go, ListVolumes: the instance that the cloud has"},
		Notes: []Note{
			{"unpublish looks at no node, and detaches the volume from whichever instance has it: a late one for the old node takes it from the new one", "exoscale/exoscale-csi-driver driver/controller.go, ControllerUnpublishVolume"},
		},
	},
	{
		Name:           "UpCloud Block Storage",
		Drivers:        []string{"storage.csi.upcloud.com"},
		Images:         []string{"upcloud-csi"},
		Read:           "v1.2.0 of 2024-07-10",
		Publishes:      Fact{Yes, "UpCloudLtd/upcloud-csi internal/controller/controller.go, supportedCapabilities"},
		ListsPublished: Fact{No, "UpCloudLtd/upcloud-csi internal/controller/controller.go, supportedCapabilities: LIST_VOLUMES without LIST_VOLUMES_PUBLISHED_NODES"},
		Notes: []Note{
			{"unpublish from a server that is not started waits for its start, and fails: power it on, or delete it", "UpCloudLtd/upcloud-csi internal/service/upcloud_service.go, DetachStorage, waitForServerOnline"},
			{"node IDs are host names, and unpublish answers OK where no server has the name", "UpCloudLtd/upcloud-csi internal/controller/controller.go, ControllerUnpublishVolume"},
		},
	},
	{
		Name:           "IBM VPC Block Storage",
		Drivers:        []string{"vpc.block.csi.ibm.io"},
		Images:         []string{"ibm-vpc-block-csi-driver"},
		Read:           "v5.2.21 of 2026-01-08",
		Publishes:      Fact{Yes, "kubernetes-sigs/ibm-vpc-block-csi-driver pkg/ibmcsidriver/ibm_csi_driver.go, csc"},
		ListsPublished: Fact{No, "kubernetes-sigs/ibm-vpc-block-csi-driver pkg/ibmcsidriver/ibm_csi_driver.go, csc: LIST_VOLUMES without LIST_VOLUMES_PUBLISHED_NODES"},
	},
	{
		Name:           "Alibaba Cloud disk",
		Drivers:        []string{"diskplugin.csi.alibabacloud.com"},
		Read:           "v1.37.1-16-g8aacf9009 of 2026-08-20",
		Publishes:      Fact{Yes, "kubernetes-sigs/alibaba-cloud-csi-driver pkg/disk/controllerserver.go, ControllerGetCapabilities"},
		ListsPublished: Fact{No, "kubernetes-sigs/alibaba-cloud-csi-driver pkg/disk/controllerserver.go, ControllerGetCapabilities: no LIST_VOLUMES"},
		Notes: []Note{
			{"its publish moves a disk by itself: one that is in use on another instance is detached from it first, unless DISK_FORCE_DETACHED is false", "kubernetes-sigs/alibaba-cloud-csi-driver pkg/disk/cloud.go, attachDisk, chooseAttachAction, and pkg/disk/disk.go, DetachBeforeAttach"},
			{"unpublish answers OK without waiting for the detach where the cloud reports a fatal event of the instance, and without any detach where DISK_DETACH_DISABLE is set", "kubernetes-sigs/alibaba-cloud-csi-driver pkg/disk/cloud.go, detachDisk, StopDiskOperationRetry, and pkg/disk/controllerserver.go, ControllerUnpublishVolume"},
		},
	},
	{
		Name:           "Tencent Cloud CBS",
		Drivers:        []string{"com.tencent.cloud.csi.cbs"},
		Images:         []string{"csi-tencentcloud-cbs"},
		Read:           "defc12d of 2025-07-08",
		Publishes:      Fact{Yes, "TencentCloud/kubernetes-csi-tencentcloud driver/cbs/controller.go, controllerCaps"},
		ListsPublished: Fact{No, "TencentCloud/kubernetes-csi-tencentcloud driver/cbs/controller.go, controllerCaps: no LIST_VOLUMES"},
		Notes: []Note{
			{"unpublish for another instance than the one that has the disk answers OK and detaches nothing; the detach itself names no instance", "TencentCloud/kubernetes-csi-tencentcloud driver/cbs/controller.go, detachVolume"},
		},
	},
	{
		Name:           "Huawei Cloud EVS",
		Drivers:        []string{"evs.csi.huaweicloud.com"},
		Images:         []string{"evs-csi-plugin"},
		Read:           "obs-0.1.4-1-g06c6079 of 2026-01-22",
		Publishes:      Fact{Yes, "huaweicloud/huaweicloud-csi-driver pkg/evs/driver.go, AddControllerServiceCapabilities"},
		ListsPublished: Fact{Yes, "huaweicloud/huaweicloud-csi-driver pkg/evs/controllerserver.go, ControllerGetVolume, ListVolumes: the attachments that the cloud has, in the list with an empty ID beside each"},
		Notes: []Note{
			{"unpublish answers NOT_FOUND where the server is not found", "huaweicloud/huaweicloud-csi-driver pkg/evs/services/computes.go, GetServer"},
		},
	},
	{
		Name: "Oracle Cloud block volume",
		// The chart puts a handle of one's choice before the name.
		Drivers:        []string{"blockvolume.csi.oraclecloud.com", ".blockvolume.csi.oraclecloud.com"},
		Read:           "v1.35.0 of 2026-06-17",
		Publishes:      Fact{Yes, "oracle/oci-cloud-controller-manager pkg/csi/driver/bv_controller.go, ControllerGetCapabilities"},
		ListsPublished: Fact{No, "oracle/oci-cloud-controller-manager pkg/csi/driver/bv_controller.go, ListVolumes is not implemented"},
		Notes: []Note{
			{"unpublish asks Kubernetes for the Node, and answers OK where it is gone, without asking the cloud: after a Node is deleted, its volumes may still be attached to a machine that runs", "oracle/oci-cloud-controller-manager pkg/csi/driver/bv_controller.go, ControllerUnpublishVolume"},
		},
	},
	{
		Name:           "Civo Volume",
		Drivers:        []string{"csi.civo.com"},
		Read:           "v0.10.7 of 2026-07-27",
		Publishes:      Fact{Yes, "civo/civo-csi pkg/driver/controller_server.go, ControllerGetCapabilities"},
		ListsPublished: Fact{No, "civo/civo-csi pkg/driver/controller_server.go, ListVolumes: an empty status"},
		Notes: []Note{
			{"unpublish for another instance than the one that has the volume answers OK and detaches nothing; the detach itself names no instance", "civo/civo-csi pkg/driver/controller_server.go, ControllerUnpublishVolume"},
		},
	},
	{
		Name:           "Outscale BSU",
		Drivers:        []string{"bsu.csi.outscale.com"},
		Images:         []string{"osc-bsu-csi-driver"},
		Read:           "v2.1.0-helm-33-ga0f01887 of 2026-08-20",
		Publishes:      Fact{Yes, "outscale/osc-bsu-csi-driver pkg/driver/controller.go, controllerCaps"},
		ListsPublished: Fact{No, "outscale/osc-bsu-csi-driver pkg/driver/controller.go, controllerCaps: no LIST_VOLUMES"},
		Notes: []Note{
			{"unpublish answers OK where the VM is not found", "outscale/osc-bsu-csi-driver pkg/driver/controller.go, ControllerUnpublishVolume, and pkg/cloud/cloud.go, DetachVolume"},
		},
	},
	{
		Name:           "cloudscale.ch",
		Drivers:        []string{"csi.cloudscale.ch"},
		Images:         []string{"cloudscale-csi-plugin"},
		Read:           "helm-csi-cloudscale-1.5.2 of 2026-06-22",
		Publishes:      Fact{Yes, "cloudscale-ch/csi-cloudscale driver/controller.go, ControllerGetCapabilities"},
		ListsPublished: Fact{No, "cloudscale-ch/csi-cloudscale driver/controller.go, ControllerGetCapabilities: LIST_VOLUMES without LIST_VOLUMES_PUBLISHED_NODES"},
		Notes: []Note{
			{"older versions moved a volume at publish without asking; this one answers FAILED_PRECONDITION", "cloudscale-ch/csi-cloudscale#143, and driver/controller.go, ControllerPublishVolume"},
		},
	},
	{
		Name:           "Yandex Cloud (Flant's driver)",
		Drivers:        []string{"yandex.csi.flant.com"},
		Images:         []string{"yandex-csi-driver"},
		Read:           "v0.15.0 of 2025-09-03",
		Publishes:      Fact{Yes, "deckhouse/yandex-csi-driver driver/controller.go, ControllerGetCapabilities"},
		ListsPublished: Fact{No, "deckhouse/yandex-csi-driver driver/controller.go, ControllerGetCapabilities: LIST_VOLUMES without LIST_VOLUMES_PUBLISHED_NODES"},
		Notes: []Note{
			{"unpublish answers OK where the instance is not found", "deckhouse/yandex-csi-driver driver/controller.go, ControllerUnpublishVolume"},
		},
	},
	{
		Name:           "STACKIT block storage",
		Drivers:        []string{"block-storage.csi.stackit.cloud"},
		Images:         []string{"stackit-csi-plugin"},
		Read:           "v1.34.0-271-gd561f8e of 2026-08-22",
		Publishes:      Fact{Yes, "stackitcloud/cloud-provider-stackit pkg/csi/blockstorage/driver.go, AddControllerServiceCapabilities"},
		ListsPublished: Fact{Yes, "stackitcloud/cloud-provider-stackit pkg/csi/blockstorage/controllerserver.go, createVolumeEntries: the server that the cloud has"},
		Notes: []Note{
			{"unpublish answers OK where the server is not found", "stackitcloud/cloud-provider-stackit pkg/csi/blockstorage/controllerserver.go, ControllerUnpublishVolume"},
			{"it can be run under the name cinder.csi.openstack.org, and is then taken for Cinder's", "stackitcloud/cloud-provider-stackit pkg/csi/blockstorage/driver.go, legacyDriverName"},
		},
	},
}

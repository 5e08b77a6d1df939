package profile

// machines are given a volume by the hypervisor that runs them.
var machines = []Profile{
	{
		Name:      "vSphere",
		Drivers:   []string{"csi.vsphere.vmware.com"},
		Images:    []string{"vsphere-csi-driver"},
		Read:      "v2.1.0-rc.1-2876-gbf8090256 of 2026-08-07",
		Publishes: Fact{Yes, "kubernetes-sigs/vsphere-csi-driver pkg/csi/service/vanilla/controller.go, ControllerGetCapabilities"},
		Notes: []Note{
			{"unpublish may fail while the VM is gone or cannot be reached: the volume then moves when it succeeds", "kubernetes-sigs/vsphere-csi-driver#526"},
			{"unpublish answers OK where the VM is not in vCenter's inventory", "kubernetes-sigs/vsphere-csi-driver pkg/csi/service/vanilla/controller.go, ControllerUnpublishVolume, ErrVMNotFound"},
			{"the nodes that it lists are the VMs of Nodes that Kubernetes still has: leave listsPublishedNodes off", "kubernetes-sigs/vsphere-csi-driver pkg/csi/service/vanilla/controller.go, ListVolumes, and pkg/common/cns-lib/node/manager.go, UnregisterNode"},
		},
	},
	{
		Name:           "Proxmox VE",
		Drivers:        []string{"csi.proxmox.sinextra.dev"},
		Images:         []string{"proxmox-csi-controller"},
		Read:           "v0.19.1 of 2026-06-25",
		Publishes:      Fact{Yes, "sergelogvinov/proxmox-csi-plugin pkg/csi/controller.go, controllerCaps"},
		ListsPublished: Fact{No, "sergelogvinov/proxmox-csi-plugin pkg/csi/controller.go, ListVolumes and ControllerGetVolume are not implemented"},
		Notes: []Note{
			{"its publish looks at the target VM alone, and not whether another VM has the disk", "sergelogvinov/proxmox-csi-plugin pkg/csi/utils.go, attachVolume"},
			{"unpublish answers OK where the VM is not found", "sergelogvinov/proxmox-csi-plugin pkg/csi/utils.go, detachVolume"},
		},
	},
	{
		Name:           "KubeVirt",
		Drivers:        []string{"csi.kubevirt.io"},
		Images:         []string{"kubevirt-csi-driver"},
		Read:           "27b52aa of 2026-06-24",
		Publishes:      Fact{Yes, "kubevirt/csi-driver pkg/service/controller.go, controllerCaps"},
		ListsPublished: Fact{No, "kubevirt/csi-driver pkg/service/controller.go, ListVolumes is not implemented"},
		Notes: []Note{
			{"its nodes are virtual machines of another cluster: whether one is off is to be asked there", "kubevirt/csi-driver pkg/service/controller.go, ControllerPublishVolume, infraClusterNamespace"},
		},
	},
	{
		Name:           "Harvester",
		Drivers:        []string{"driver.harvesterhci.io"},
		Images:         []string{"harvester-csi-driver"},
		Read:           "v0.2.9-7-g97b6c358 of 2026-06-23",
		Publishes:      Fact{Yes, "harvester/harvester-csi-driver pkg/csi/controller_server.go, NewControllerServer"},
		ListsPublished: Fact{No, "harvester/harvester-csi-driver pkg/csi/controller_server.go, ListVolumes is not implemented"},
		Notes: []Note{
			{"Harvester may delete the virtual machines of a host by force once it has not been Ready for a time, and start them elsewhere, without a look at the host's power: a node may then run twice", "harvester/harvester pkg/controller/master/node/node_down_controller.go, OnNodeChanged, at 1bec677"},
		},
	},
	{
		Name:           "Apache CloudStack",
		Drivers:        []string{"csi.cloudstack.apache.org"},
		Images:         []string{"cloudstack-csi-driver"},
		Read:           "cloudstack-csi-3.0.1 of 2026-02-25",
		Publishes:      Fact{Yes, "cloudstack/cloudstack-csi-driver pkg/driver/controller.go, ControllerGetCapabilities"},
		ListsPublished: Fact{No, "cloudstack/cloudstack-csi-driver pkg/driver/controller.go, ControllerGetCapabilities: no LIST_VOLUMES"},
		Notes: []Note{
			{"unpublish answers OK where the VM is not found", "cloudstack/cloudstack-csi-driver pkg/driver/controller.go, ControllerUnpublishVolume"},
		},
	},
	{
		Name:           "VMware Cloud Director named disk",
		Drivers:        []string{"named-disk.csi.cloud-director.vmware.com"},
		Images:         []string{"cloud-director-named-disk-csi-driver"},
		Read:           "1.3.0-fc-154-g22414a3 of 2024-09-09",
		Publishes:      Fact{Yes, "vmware/cloud-director-named-disk-csi-driver pkg/csi/driver.go, RPC_PUBLISH_UNPUBLISH_VOLUME"},
		ListsPublished: Fact{No, "vmware/cloud-director-named-disk-csi-driver pkg/csi/controller.go, ListVolumes: not implemented"},
		Notes: []Note{
			{"node IDs are the names of VMs, and unpublish fails where no VM has the name while the disk is attached to any", "vmware/cloud-director-named-disk-csi-driver pkg/csi/controller.go, ControllerUnpublishVolume"},
		},
	},
}

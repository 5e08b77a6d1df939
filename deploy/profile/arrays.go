package profile

// podmon is CSM for Resiliency.
var podmon = Note{
	"podmon (CSM for Resiliency), where it is enabled, unpublishes past csi-fencepost, at the driver's own socket, and deletes VolumeAttachments and pods: it moves volumes as csi-fencepost's failover does, so run one of the two",
	"dell/karavi-resiliency internal/monitor/controller.go, controllerCleanupPod, at v1.14.0-4-g5544213",
}

// arrays let a client in to a volume, and take it off the list again. Whether that
// ends a session that goes on writing is not in a driver's source.
var arrays = []Profile{
	{
		Name:      "NetApp Trident",
		Drivers:   []string{"csi.trident.netapp.io"},
		Images:    []string{"trident"},
		Read:      "v22.04.0-949-g71dd7161 of 2026-07-31",
		Publishes: Fact{Yes, "NetApp/trident frontend/csi/plugin.go, addControllerServiceCapabilities"},
		Notes: []Note{
			{"the nodes that it lists are of Trident's own records, and not of the array: leave listsPublishedNodes off", "NetApp/trident frontend/csi/controller_server.go, ListVolumes, ListVolumePublicationsForVolume"},
			{"unpublish answers OK where Trident has no record of the node or of the publication", "NetApp/trident core/orchestrator_core.go, unpublishVolume, and frontend/csi/controller_server.go, ControllerUnpublishVolume"},
			{"with enableForceDetach, a TridentNodeRemediation has Trident delete the pods and VolumeAttachments of a node: it moves volumes as csi-fencepost's failover does, so run one of the two", "NetApp/trident frontend/crd/controller/trident_node_remediation.go, failoverDetach"},
			{"unpublish may fail while the node is gone: the volume then moves when it succeeds", "NetApp/trident#691"},
		},
	},
	{
		Name:      "Dell PowerStore",
		Drivers:   []string{"csi-powerstore.dellemc.com"},
		Images:    []string{"csi-powerstore"},
		Read:      "v2.16.0 of 2026-02-03",
		Publishes: Fact{Yes, "dell/csi-powerstore pkg/controller/controller.go, ControllerGetCapabilities"},
		// ListsPublished depends on its health monitor (the same function).
		Notes: []Note{podmon},
	},
	{
		Name:           "Dell PowerFlex",
		Drivers:        []string{"csi-vxflexos.dellemc.com"},
		Images:         []string{"csi-vxflexos"},
		Read:           "v2.16.1 of 2026-03-17",
		Publishes:      Fact{Yes, "dell/csi-powerflex service/controller.go, ControllerGetCapabilities"},
		ListsPublished: Fact{No, "dell/csi-powerflex service/controller.go, ControllerGetCapabilities: no LIST_VOLUMES_PUBLISHED_NODES"},
		Notes:          []Note{podmon},
	},
	{
		Name:      "Dell Unity XT",
		Drivers:   []string{"csi-unity.dellemc.com"},
		Images:    []string{"csi-unity"},
		Read:      "v2.16.0-3-g8a247ce of 2026-05-28",
		Publishes: Fact{Yes, "dell/csi-unity service/controller.go, ControllerGetCapabilities"},
		// ListsPublished depends on its health monitor, and is then for one volume at a time.
		Notes: []Note{podmon},
	},
	{
		Name:    "Dell PowerMax",
		Drivers: []string{"csi-powermax.dellemc.com"},
		Read:    "v2.15.0-2-g36eda06 of 2025-10-17",
		// Images: csi-powermax, whose name an installation may choose in a variable of its own.
		Publishes:      Fact{Yes, "dell/csi-powermax service/controller.go, ControllerGetCapabilities"},
		ListsPublished: Fact{No, "dell/csi-powermax service/controller.go, ListVolumes is not implemented"},
		Notes:          []Note{podmon},
	},
	{
		Name:           "Dell PowerScale",
		Drivers:        []string{"csi-isilon.dellemc.com"},
		Images:         []string{"csi-isilon"},
		Read:           "v2.16.0-1-g82fe23f of 2026-02-23",
		Publishes:      Fact{Yes, "dell/csi-powerscale service/controller.go, ControllerGetCapabilities"},
		ListsPublished: Fact{No, "dell/csi-powerscale service/controller.go, ControllerGetCapabilities: LIST_VOLUMES without LIST_VOLUMES_PUBLISHED_NODES"},
		Notes: []Note{
			podmon,
			{"where the array answers \"No such file or directory\", unpublish goes on to delete the volume", "dell/csi-powerscale service/controller.go, ControllerUnpublishVolume, DeleteVolume"},
		},
	},
	{
		Name:    "HPE",
		Drivers: []string{"csi.hpe.com"},
		Read:    "v3.2.0-20-g94c8cd10 of 2026-08-20",
		// Images: csi-driver, as others have it.
		Publishes:      Fact{Yes, "hpe-storage/csi-driver pkg/driver/driver.go, AddControllerServiceCapabilities"},
		ListsPublished: Fact{No, "hpe-storage/csi-driver pkg/driver/driver.go, AddControllerServiceCapabilities: LIST_VOLUMES without LIST_VOLUMES_PUBLISHED_NODES"},
		Notes: []Note{
			{"its pod monitor, on in the manifests, deletes VolumeAttachments and pods of unreachable nodes, for pods with the label monitored-by: it moves volumes as csi-fencepost's failover does, so take the label off, or leave failover off", "hpe-storage/csi-driver pkg/flavor/kubernetes/flavor.go, MonitorPod, and hpe-storage/co-deployments yaml/csi-driver/v3.2.0/hpe-csi-controller.yaml, --pod-monitor"},
			{"unpublish answers OK where the array's service says that the volume is not published", "hpe-storage/csi-driver pkg/driver/controller_server.go, controllerUnpublishVolume"},
		},
	},
	{
		Name:           "IBM block storage",
		Drivers:        []string{"block.csi.ibm.com"},
		Images:         []string{"ibm-block-csi-driver-controller"},
		Read:           "v1.12.4-7-g2f19986f of 2025-06-19",
		Publishes:      Fact{Yes, "IBM/ibm-block-csi-driver controllers/servers/csi/csi_controller_server.py, ControllerGetCapabilities"},
		ListsPublished: Fact{No, "IBM/ibm-block-csi-driver controllers/servers/csi/csi_controller_server.py, ListVolumes is not implemented"},
		Notes: []Note{
			{"unpublish answers OK where the array does not find the host", "IBM/ibm-block-csi-driver controllers/servers/csi/csi_controller_server.py, ControllerUnpublishVolume, HostNotFoundError"},
		},
	},
	{
		Name:           "Seagate Exos X",
		Drivers:        []string{"csi-exos-x.seagate.com"},
		Images:         []string{"seagate-exos-x-csi"},
		Read:           "v1.10.0-1-gda43776 of 2025-03-19",
		Publishes:      Fact{Yes, "Seagate/seagate-exos-x-csi pkg/controller/controller.go, ControllerGetCapabilities"},
		RevokesAccess:  Fact{No, "Seagate/seagate-exos-x-csi pkg/controller/publisher.go, ControllerUnpublishVolume: it asks the node for its initiators, and where the node does not answer it unmaps none and answers OK"},
		ListsPublished: Fact{No, "Seagate/seagate-exos-x-csi pkg/controller/controller.go, ControllerGetCapabilities: no LIST_VOLUMES"},
		Notes: []Note{
			{"after an unpublish of a node that does not answer, the array still lets it in, and the driver said OK: take it off the array by hand before it is turned on again", "Seagate/seagate-exos-x-csi pkg/controller/publisher.go, ControllerUnpublishVolume"},
		},
	},
	{
		Name:           "Huawei OceanStor",
		Drivers:        []string{"csi.huawei.com"},
		Images:         []string{"huawei-csi"},
		Read:           "v4.12.0 of 2026-06-29",
		Publishes:      Fact{Yes, "Huawei/eSDK_K8S_Plugin csi/driver/controller.go, ControllerGetCapabilities"},
		ListsPublished: Fact{No, "Huawei/eSDK_K8S_Plugin csi/driver/controller.go, ListVolumes is not implemented"},
		Notes: []Note{
			{"unpublish answers OK where its backend is not configured any more, and the volume stays attached", "Huawei/eSDK_K8S_Plugin csi/driver/controller.go, ControllerUnpublishVolume"},
		},
	},
	{
		Name:           "TrueNAS",
		Drivers:        []string{"csi.truenas.io"},
		Images:         []string{"truenas-csi-driver"},
		Read:           "fcb57bc of 2026-02-05",
		Publishes:      Fact{Yes, "truenas/truenas-csi pkg/driver/driver.go, RPC_PUBLISH_UNPUBLISH_VOLUME"},
		RevokesAccess:  Fact{No, "truenas/truenas-csi pkg/driver/controller.go, ControllerUnpublishVolume: OK without doing anything"},
		ListsPublished: Fact{No, "truenas/truenas-csi pkg/driver/driver.go, RPC_LIST_VOLUMES without LIST_VOLUMES_PUBLISHED_NODES"},
		Notes: []Note{
			{"its publish answers NOT_FOUND for any node but that of its controller", "truenas/truenas-csi pkg/driver/controller.go, ControllerPublishVolume, NodeID"},
			{"neither its publish nor its unpublish lets a node in or out: nothing but csi-fencepost keeps a second node out, and a silent node that lives goes on writing after its unpublish", "truenas/truenas-csi pkg/driver/controller.go, ControllerPublishVolume, ControllerUnpublishVolume"},
		},
	},
}

package profile

// clustered storage is made of disks of machines, often of the nodes' own.
var clustered = []Profile{
	{
		Name: "Ceph RBD",
		// Rook puts its operator's namespace before the name.
		Drivers:    []string{"rbd.csi.ceph.com", ".rbd.csi.ceph.com"},
		Read:       "52fcb7b of 2024-10-22",
		Publishes:  Fact{Yes, "ceph/ceph-csi deploy/rbd/kubernetes/csidriver.yaml, attachRequired: true"},
		TaintFirst: Fact{Yes, "ceph/ceph-csi#5409: ControllerUnpublishVolume blocklists the client only when the node has the out-of-service taint"},
		Notes: []Note{
			{"a release without fencing in ControllerUnpublishVolume has no PUBLISH_UNPUBLISH_VOLUME either: external-attacher asks it nothing, and there is nothing that csi-fencepost could refuse", "ceph/ceph-csi#5429, and internal/rbd/driver/driver.go, AddControllerServiceCapabilities, before it"},
			{"the blocklist is the node's, and GetFenceClients lifts it again: leave unpublishRevokesAccess off", "ceph/ceph-csi docs/design/proposals/non-graceful-node-shutdown.md, Proposed solution, at 4e8df27"},
		},
	},
	{
		Name:    "CephFS",
		Drivers: []string{"cephfs.csi.ceph.com", ".cephfs.csi.ceph.com"},
		Read:    "52fcb7b of 2024-10-22",
		// Publishes depends on the release and on who installs it.
		TaintFirst: Fact{Yes, "ceph/ceph-csi docs/design/proposals/non-graceful-node-shutdown.md, ControllerUnpublishVolume: it evicts and blocklists the client if the node has the out-of-service taint, at 4e8df27"},
		Notes: []Note{
			{"with attachRequired: false in its CSIDriver object, as in Ceph-CSI's own manifests before fencing, there is nothing to guard", "ceph/ceph-csi deploy/cephfs/kubernetes/csidriver.yaml, attachRequired"},
		},
	},
	{
		Name:           "LINSTOR, Piraeus",
		Drivers:        []string{"linstor.csi.linbit.com"},
		Images:         []string{"piraeus-csi"},
		Read:           "v1.12.0 of 2026-07-24",
		Publishes:      Fact{Yes, "piraeusdatastore/linstor-csi pkg/driver/driver.go, ControllerGetCapabilities"},
		RevokesAccess:  Fact{No, "piraeusdatastore/linstor-csi pkg/client/linstor.go, Detach: OK without doing anything where the node has a replica, or still uses the volume"},
		ListsPublished: Fact{No, "piraeusdatastore/linstor-csi pkg/driver/driver.go, ControllerGetCapabilities: LIST_VOLUMES and GET_VOLUME without LIST_VOLUMES_PUBLISHED_NODES"},
		Notes: []Note{
			{"its publish refuses no second node while one has the volume in use: what keeps that one from writing is DRBD, with its quorum", "piraeusdatastore/linstor-csi pkg/client/linstor.go, Attach, otherResInUse"},
			{"Piraeus' High Availability Controller deletes pods and VolumeAttachments of nodes that lost DRBD's quorum: it moves volumes as csi-fencepost's failover does, so run one of the two", "piraeusdatastore/piraeus-ha-controller pkg/agent/reconcile_failover.go, evictPods, at v1.3.2-18-g2f09cfa"},
		},
	},
	{
		Name:    "Longhorn",
		Drivers: []string{"driver.longhorn.io"},
		Read:    "v1.13.0-dev-20260712-168-g5ddaa369f of 2026-08-21",
		// Images: longhorn-manager, which is not beside the attacher.
		Publishes:      Fact{Yes, "longhorn/longhorn-manager csi/controller_server.go, NewControllerServer"},
		ListsPublished: Fact{No, "longhorn/longhorn-manager csi/controller_server.go, ListVolumes is not implemented"},
		Notes: []Note{
			{"with the setting node-down-pod-deletion-policy, Longhorn deletes VolumeAttachments and pods of nodes that are down, which is to say NotReady: leave it at do-nothing, or csi-fencepost's failover off", "longhorn/longhorn-manager controller/kubernetes_pod_controller.go, handlePodDeletionIfNodeDown"},
			{"the attacher is a Deployment of its own that Longhorn's driver deployer makes, and reaches the driver by a socket of the node", "longhorn/longhorn-manager csi/deployment.go, NewAttacherDeployment"},
		},
	},
	{
		Name:           "OpenEBS Mayastor",
		Drivers:        []string{"io.openebs.csi-mayastor"},
		Read:           "v1.0.1-1706-gc02e0cb7 of 2024-10-23",
		Publishes:      Fact{Yes, "openebs/mayastor-control-plane control-plane/csi-driver/src/bin/controller/controller.rs, controller_get_capabilities"},
		ListsPublished: Fact{No, "openebs/mayastor-control-plane control-plane/csi-driver/src/bin/controller/controller.rs, list_volumes: no status"},
		Notes: []Note{
			{"unpublish looks at no node, and takes the volume by force from whichever has it: a late one for the old node takes it from the new one", "openebs/mayastor-control-plane control-plane/csi-driver/src/bin/controller/controller.rs, controller_unpublish_volume"},
		},
	},
	{
		Name:      "OpenEBS cStor",
		Drivers:   []string{"cstor.csi.openebs.io"},
		Images:    []string{"cstor-csi-driver"},
		Read:      "cstor-3.6.0 of 2023-12-11",
		Publishes: Fact{No, "openebs/cstor-operators deploy/cstor-operator.yaml, CSIDriver: attachRequired: false"},
	},
	{
		Name:    "StorPool",
		Drivers: []string{"csi.storpool.com"},
		Read:    "0308b24 of 2024-03-26",
		// Images: its last path element is release.
		Publishes:      Fact{Yes, "storpool/storpool-csi services/controller.py, ControllerGetCapabilities"},
		ListsPublished: Fact{No, "storpool/storpool-csi services/controller.py, ControllerGetCapabilities: no LIST_VOLUMES"},
		Notes: []Note{
			{"its publish detaches the volume from all other nodes, and fails only where StorPool calls it busy", "storpool/storpool-csi services/controller.py, ControllerPublishVolume"},
		},
	},
	{
		Name:           "Lightbits",
		Drivers:        []string{"csi.lightbitslabs.com"},
		Images:         []string{"lb-csi-plugin"},
		Read:           "v1.21.0-8-g403ed3e of 2026-02-24",
		Publishes:      Fact{Yes, "LightBitsLabs/los-csi pkg/driver/controller.go, controllerCaps"},
		ListsPublished: Fact{No, "LightBitsLabs/los-csi pkg/driver/controller.go, controllerCaps: no LIST_VOLUMES"},
		Notes: []Note{
			{"unpublish takes the node off the volume's access list; what becomes of a connection that is open is not said", "LightBitsLabs/los-csi pkg/driver/controller.go, doUnpublishVolumeRWO"},
		},
	},
	{
		Name:    "Portworx",
		Drivers: []string{"pxd.portworx.com"},
		Read:    "v10.0.96-185-g03325516 of 2025-03-26",
		// Publishes: its source is not all public, and was read up to that day.
		Notes: []Note{
			{"by its public source there is nothing to guard: Portworx attaches volumes itself, on the node, and what keeps a second writer out is Portworx", "libopenstorage/openstorage csi/controller.go, ControllerPublishVolume, and libopenstorage/operator drivers/storage/portworx/component/csi.go, AttachRequired, at 303cc3735"},
		},
	},
	{
		Name:    "Nutanix",
		Drivers: []string{"csi.nutanix.com", "com.nutanix.csi"},
		Images:  []string{"ntnx-csi"},
		Read:    "c98be4b of 2026-03-03",
		// Publishes: its source is not public, and of its charts that of version 2 was read.
		Notes: []Note{
			{"version 2 has attachRequired: false in its CSIDriver object, and there is nothing to guard", "nutanix/helm charts/nutanix-csi-storage/templates/csi-driver.yaml, attachRequired"},
		},
	},
	{
		Name:    "hostpath (for tests)",
		Drivers: []string{"hostpath.csi.k8s.io"},
		Images:  []string{"hostpathplugin"},
		Read:    "v1.18.0-8-g1f2b2e64 of 2026-07-27",
		// Publishes depends on --enable-attach.
		Notes: []Note{
			{"it publishes volumes only with --enable-attach; without, there is nothing to guard", "kubernetes-csi/csi-driver-host-path cmd/hostpathplugin/main.go, EnableAttach"},
		},
	},
}

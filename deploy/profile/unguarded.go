package profile

// unguarded drivers are asked to publish nothing: there is no call to refuse.
var unguarded = []Profile{
	{
		Name:      "NFS",
		Drivers:   []string{"nfs.csi.k8s.io"},
		Images:    []string{"nfsplugin"},
		Read:      "v4.13.0-349-gd3b27c00 of 2026-08-22",
		Publishes: Fact{No, "kubernetes-csi/csi-driver-nfs deploy/csi-nfs-driverinfo.yaml, attachRequired: false"},
	},
	{
		Name:      "SMB",
		Drivers:   []string{"smb.csi.k8s.io"},
		Images:    []string{"smbplugin"},
		Read:      "v1.20.0-284-g95c696805 of 2026-08-07",
		Publishes: Fact{No, "kubernetes-csi/csi-driver-smb deploy/csi-smb-driver.yaml, attachRequired: false"},
	},
	{
		Name:      "Azure File",
		Drivers:   []string{"file.csi.azure.com"},
		Images:    []string{"azurefile-csi"},
		Read:      "v1.35.0-633-g7b5ae18e7 of 2026-08-22",
		Publishes: Fact{No, "kubernetes-sigs/azurefile-csi-driver pkg/azurefile/azurefile.go, AddControllerServiceCapabilities: no PUBLISH_UNPUBLISH_VOLUME"},
	},
	{
		Name:      "AWS EFS",
		Drivers:   []string{"efs.csi.aws.com"},
		Images:    []string{"aws-efs-csi-driver"},
		Read:      "helm-chart-aws-efs-csi-driver-3.3.0-206-ga4fc6760 of 2026-07-24",
		Publishes: Fact{No, "kubernetes-sigs/aws-efs-csi-driver deploy/kubernetes/base/csidriver.yaml, attachRequired: false"},
	},
	{
		Name:      "GCP Filestore",
		Drivers:   []string{"filestore.csi.storage.gke.io"},
		Images:    []string{"gcp-filestore-csi-driver"},
		Read:      "v1.13.0-8-g2edb466b of 2026-06-24",
		Publishes: Fact{No, "kubernetes-sigs/gcp-filestore-csi-driver deploy/kubernetes/base/controller/csi_driver.yaml, attachRequired: false"},
	},
	{
		Name:      "Pure Service Orchestrator",
		Drivers:   []string{"pure-csi"},
		Read:      "c591f6a of 2021-10-26",
		Publishes: Fact{No, "purestorage/helm-charts pure-csi/templates/node.yaml, CSIDriver: attachRequired: false"},
	},
	{
		Name:      "Synology",
		Drivers:   []string{"csi.san.synology.com"},
		Images:    []string{"synology-csi"},
		Read:      "v1.2.1-7-g2807900 of 2026-01-28",
		Publishes: Fact{No, "SynologyOpenSource/synology-csi pkg/driver/driver.go, addControllerServiceCapabilities: no PUBLISH_UNPUBLISH_VOLUME; ControllerPublishVolume is not implemented"},
		Notes: []Note{
			{"its CSIDriver object says attachRequired: true all the same, and Kubernetes' check for a second node stands, but no call is made that could be refused", "SynologyOpenSource/synology-csi deploy/kubernetes/v1.20/csi-driver.yml, attachRequired"},
		},
	},
}

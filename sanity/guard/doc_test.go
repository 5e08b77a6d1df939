// Package guard holds csi-fencepost, as it is built and shipped, to its rules on
// a real etcd and kube-apiserver. There are no kubelets and no controllers: the
// tests play the kubelet, the attach-detach controller and external-attacher,
// object by object and call by call, so that each rule meets exactly the state
// that it is about. The driver is the reference driver (package array).
//
//	main_test.go   what the tests share: one API server
//	rig_test.go    a driver, a csi-fencepost and its caller
//	node_test.go   a machine, as its Node, CSINode and lease tell of it
//	volume_test.go a volume's VolumeAttachments and ledger, and what became of them
//
// What real kubelets and controllers do with it is played in sanity/scenarios.
package guard

// Package inject puts csi-fencepost into the controller pod of a CSI driver, in
// the text of the vendor's manifests, and takes it out again.
//
//	files ─▶ manifests ─▶ Workload ─▶ Plan ─▶ values ─▶ package splice ─▶ files
//	                                   └▶ documents: rights, configuration
//
// A Plan is data: which container is external-attacher, what changes in it, the
// sidecar, the volumes, the documents, and the findings that say why. Other ways
// to the same end (a policy, a kustomize component) are made from it. The
// sidecar is the one of deploy/sidecar/patch.yaml, fitted to the pod. The attacher may be a part
// of csi-sidecars (KEP-4958): then that whole container is pointed at our socket.
//
// It guarantees that every line that it does not have to change stays as it is,
// byte for byte; that Uninject(Inject(x)) is x; that Inject does the same when
// it is done twice; and that what it cannot do so, it refuses, with file and
// line. Where comments are lost (a manifest that was read back from a cluster),
// Uninject restores the meaning by the annotation inject.csi-fencepost.io/….
//
// It does not know what is not in the manifests: a user in an image, an
// environment that comes from a ConfigMap, a socket that another pod serves. The
// findings say what was assumed instead. It does not apply anything, and takes
// nothing out of a cluster.
package inject

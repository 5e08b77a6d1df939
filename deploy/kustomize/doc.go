// Package kustomize renders what [inject] plans as a kustomize component, for
// those who take a vendor's manifests as a base and never edit them:
//
//	my-driver/kustomization.yaml    resources: [the vendor's]
//	                                components: [fencepost]
//	my-driver/fencepost/            what this package renders
//	    kustomization.yaml            the patches
//	    fencepost.yaml                rights and configuration
//
// It guarantees that kustomize builds what Inject would have written, or fails:
// where the vendor's manifest is no longer what the plan has seen (another name,
// other arguments of external-attacher), the build names the patch that does not
// apply. It needs no plugin, so kubectl apply -k, Flux and Argo CD can use it.
//
// It does not guarantee that for a kustomization that also sets namespace: or
// namePrefix: these change the names in fencepost.yaml as well, of which some
// (kube-node-lease, kube-system, csi-fencepost) have to stay. Put such a
// kustomization below the one with the component.
//
// The folder component/ is one such component, for the driver of the tests, as
// an example.
package kustomize

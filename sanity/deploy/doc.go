// Package deploy tests what the folder deploy/ ships with the real tools and the
// real API server: kustomize, Helm 3 and 4, and kube-apiserver with its admission
// policies. The tools are in modules of their own under tools/, and are built
// into bin/ at the first test that needs them.
package deploy

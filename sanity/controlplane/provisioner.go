package controlplane

import (
	"context"
	"io"
)

var provisionerModule = nestedModule{folder: "provisioner", name: "csi-provisioner",
	pkg: "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner", version: "github.com/kubernetes-csi/external-provisioner/v6"}

// BuildProvisioner returns the path of external-provisioner, and builds it as Build does
// where it is not in the user's cache folder yet.
func BuildProvisioner(ctx context.Context, progress io.Writer) (string, error) {
	return provisionerModule.build(ctx, progress)
}

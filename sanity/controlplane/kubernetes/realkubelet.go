package main

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/kubernetes/cmd/kubelet/app"
)

// The kubelet as a node has it, for the stage of real nodes: with the container
// runtime, the cgroups and the mounts of the machine below it.
func init() {
	components["real-kubelet"] = func() *cobra.Command { return app.NewKubeletCommand(context.Background()) }
}

// Command kubernetes is the control plane of the scenarios: the real
// components of Kubernetes, and kubectl, in one program, one subcommand each, so
// that they are linked once.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": newControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 newKubeletCommand,
	"container-runtime":       newRuntimeCommand,
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func newControllerManagerCommand() *cobra.Command {
	if err := shortenTimers(os.LookupEnv); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return controllermanager.NewControllerManagerCommand()
}

func main() {
	if len(os.Args) < 2 || components[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: kubernetes kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|container-runtime|kubectl [flags]")
		os.Exit(2)
	}
	newCommand := components[os.Args[1]]
	os.Args = os.Args[1:] // before it is made: kubectl looks for its plugins then
	command := newCommand()
	os.Exit(cli.Run(command))
}

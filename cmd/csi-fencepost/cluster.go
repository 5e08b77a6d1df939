package main

import (
	"context"
	"fmt"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
)

// requestTimeout of a command's requests to the Kubernetes API: a person waits.
const requestTimeout = 20 * time.Second

// clusterFlags are the flags of all commands that talk to a cluster.
type clusterFlags struct {
	kubeconfig string
	context    string
	config     string
}

func (f *clusterFlags) register(fs *cli.Flags) {
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "The kubeconfig file. Default: as kubectl does, KUBECONFIG, then ~/.kube/config, then the pod's service account.")
	fs.StringVar(&f.context, "context", "", "The context of the kubeconfig. Default: its current one.")
	fs.StringVar(&f.config, "config", "", "The configuration file that the sidecar runs with. Without one, every default holds.")
}

// A cluster is what a command works on.
type cluster struct {
	client kubernetes.Interface
	config *config.Configuration
	// namespace of the kubeconfig's context.
	namespace string
	// lives follows leases from one look to the next; nil: each look is a first
	// one.
	lives *observe.Tracker
}

// open makes the client. It makes no request yet.
func (f *clusterFlags) open(command string) (*cluster, error) {
	cfg, err := loadConfig(f.config)
	if err != nil {
		return nil, cli.Usagef("%s: --config: %v", command, err)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	rest, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("the Kubernetes API is not known: %w; give --kubeconfig, or set KUBECONFIG", err)
	}
	rest.QPS, rest.Burst, rest.Timeout = 50, 100, requestTimeout
	rest.UserAgent = "csi-fencepost-" + command + "/" + cli.BuildVersion()
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return nil, fmt.Errorf("the Kubernetes API of %s: %w", rest.Host, err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("the namespace of the kubeconfig: %w", err)
	}
	return &cluster{client: client, config: cfg, namespace: namespace}, nil
}

// clusterIdentity is the cluster's identity: the UID of the namespace kube-system.
func clusterIdentity(ctx context.Context, client kubernetes.Interface) (string, error) {
	ns, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("cannot read the identity of the cluster (the UID of namespace kube-system): %w", err)
	}
	return string(ns.UID), nil
}

// operator names who gives the command: as the API server knows them, else as
// this machine does.
func operator(ctx context.Context, client kubernetes.Interface) string {
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil && review.Status.UserInfo.Username != "" {
		return review.Status.UserInfo.Username
	}
	user, host := os.Getenv("USER"), "unknown host"
	if user == "" {
		user = "unknown user"
	}
	if name, err := os.Hostname(); err == nil {
		host = name
	}
	return user + "@" + host
}

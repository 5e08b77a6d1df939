package cluster

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
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// requestTimeout of a command's requests to the Kubernetes API: a person waits.
const requestTimeout = 20 * time.Second

// Flags are the flags of all commands that talk to a cluster.
type Flags struct {
	kubeconfig string
	context    string
	Config     string
}

// Register adds the flags.
func (f *Flags) Register(fs *cli.Flags) {
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "The kubeconfig file. Default: as kubectl does, KUBECONFIG, then ~/.kube/config, then the pod's service account.")
	fs.StringVar(&f.context, "context", "", "The context of the kubeconfig. Default: its current one.")
	fs.StringVar(&f.Config, "config", "", "The configuration file that the sidecar runs with. Without one, every default holds.")
}

// A Cluster is what a command works on.
type Cluster struct {
	Client kubernetes.Interface
	Config *config.Configuration
	// Namespace of the kubeconfig's context.
	Namespace string
	// Lives follows leases from one look to the next; nil: each look is a first
	// one.
	Lives *observe.Tracker
}

// Open makes the client. It makes no request yet.
func (f *Flags) Open(command string) (*Cluster, error) {
	cfg, err := LoadConfig(f.Config)
	if err != nil {
		return nil, cli.Usagef("%s: --config: %v", command, err)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	rest, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("the Kubernetes API is not known: %w; give --kubeconfig, or set KUBECONFIG", ExplainKubeconfig(err))
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
	return &Cluster{Client: client, Config: cfg, Namespace: namespace}, nil
}

// Identity is the cluster's identity: the UID of the namespace kube-system.
func Identity(ctx context.Context, client kubernetes.Interface) (string, error) {
	ns, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("cannot read the identity of the cluster (the UID of namespace kube-system): %w", err)
	}
	return string(ns.UID), nil
}

// Operator names who gives the command: as the API server knows them, else as
// this machine does.
func Operator(ctx context.Context, client kubernetes.Interface) string {
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

// OpenWithAgents is open for a command that needs agents.
func (f *Flags) OpenWithAgents(command string) (*Cluster, error) {
	if f.Config == "" {
		return nil, cli.Usagef("%s: --config is missing: the configuration that names the fence agents; run it where that and the files that it names are, for example in the sidecar's pod", command)
	}
	c, err := f.Open(command)
	if err == nil && len(c.Config.Fencing.Levels) == 0 {
		err = fmt.Errorf("configuration %s names no fence agent (fencing.levels)", f.Config)
	}
	return c, err
}

// LoadConfig reads a configuration file; without one, every default holds.
func LoadConfig(path string) (*config.Configuration, error) {
	if path == "" {
		return config.Default(), nil
	}
	return config.Load(path)
}

// Records of the cluster.
func (c *Cluster) Records() *record.Store {
	return record.NewStore(c.Client.CoordinationV1(), c.Config.Fencing.Namespace)
}

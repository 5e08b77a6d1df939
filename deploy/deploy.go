package deploy

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Files are the manifests of this folder, with their placeholders.
//
//go:embed rbac/*.yaml sidecar/*.yaml failover/rbac.yaml failover/config.yaml failover/deployment.yaml failover/networkpolicy.yaml
var Files embed.FS

// Names replace the placeholders of the manifests.
type Names struct {
	Namespace      string // ${NAMESPACE}: of the driver's controller pod
	ServiceAccount string // ${SERVICE_ACCOUNT}: of that pod
	Driver         string // ${DRIVER}: as in its CSIDriver object
}

// Observe returns the manifests, in the order in which they are applied, of all
// that mode Observe may do in the Kubernetes API, and nothing more. An error
// says which name cannot stand in a manifest.
func Observe(n Names) ([]byte, error) {
	return n.render("rbac/namespace.yaml", "rbac/observe.yaml")
}

// Enforce returns the same for mode Enforce, which may do all that Observe may.
func Enforce(n Names) ([]byte, error) {
	return n.render("rbac/namespace.yaml", "rbac/observe.yaml", "rbac/enforce.yaml", "rbac/kubelet.yaml")
}

// Failover returns the same for mode Enforce with failover.enabled, which may
// taint nodes and delete pods besides.
func Failover(n Names) ([]byte, error) {
	return n.render("rbac/namespace.yaml", "rbac/observe.yaml", "rbac/enforce.yaml", "rbac/kubelet.yaml", "rbac/failover.yaml")
}

// KubeletAccount is the service account by which kubelets are asked (rbac/kubelet.yaml), in the
// namespace of the nodes' records. Its roles are called so too.
const KubeletAccount = "csi-fencepost-kubelet"

// ApartNamespace is that of failover as a Deployment of its own, and ApartAccount its service
// account.
const ApartNamespace, ApartAccount = "csi-fencepost-failover", "csi-fencepost-failover"

// Apart returns what failover as a Deployment of its own may do in the Kubernetes API, for all
// drivers: the names are fixed, and n is not asked.
func Apart(n Names) ([]byte, error) {
	return n.render("rbac/namespace.yaml", "failover/rbac.yaml")
}

// ApartDeployment returns all of failover as a Deployment of its own, with that image. Its
// ConfigMap and its Secret are not in it: whoever renders it anew overwrites neither.
func ApartDeployment(n Names, image string) ([]byte, error) {
	text, err := n.render("rbac/namespace.yaml", "failover/rbac.yaml", "failover/deployment.yaml")
	const ours = "image: csi-fencepost:dev\n"
	if err == nil && bytes.Count(text, []byte(ours)) != 1 {
		err = errors.New("deploy/failover/deployment.yaml names no image csi-fencepost:dev")
	}
	return bytes.Replace(text, []byte(ours), []byte("image: "+image+"\n"), 1), err
}

// EnforcingPrefix begins the name of the ClusterRoleBinding of each driver that guards
// (rbac/enforce.yaml). Who may write it may give himself every right, and so no driver's pod may.
const EnforcingPrefix = "csi-fencepost-enforce-"

// Enforcing is the driver whose ClusterRoleBinding in mode Enforce is called so; false: it is
// another's.
func Enforcing(binding string) (driver string, ok bool) {
	driver, ok = strings.CutPrefix(binding, EnforcingPrefix)
	return driver, ok && len(validation.IsDNS1123Subdomain(driver)) == 0
}

// Authorization returns what --http-authorization needs besides, in any mode.
func Authorization(n Names) ([]byte, error) {
	return n.render("rbac/authorization.yaml")
}

// render joins files into one stream of documents, with the names put in.
func (n Names) render(files ...string) ([]byte, error) {
	if err := n.check(); err != nil {
		return nil, err
	}
	names := strings.NewReplacer(
		"${NAMESPACE}", n.Namespace,
		"${SERVICE_ACCOUNT}", n.ServiceAccount,
		"${DRIVER}", n.Driver,
	)
	var all []string
	for _, file := range files {
		text, err := Files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all = append(all, names.Replace(string(text)))
	}
	return []byte(strings.Join(all, "---\n")), nil
}

// check refuses what is no name of an object: it could also change the meaning
// of the manifest around it.
func (n Names) check() error {
	for _, c := range []struct {
		what, name string
		problems   func(string) []string
	}{
		{"namespace", n.Namespace, validation.IsDNS1123Label},
		{"service account", n.ServiceAccount, validation.IsDNS1123Subdomain},
		{"driver", n.Driver, validation.IsDNS1123Subdomain},
	} {
		if problems := c.problems(c.name); len(problems) > 0 {
			return fmt.Errorf("deploy: %q cannot be the %s: %s", c.name, c.what, strings.Join(problems, "; "))
		}
	}
	return nil
}

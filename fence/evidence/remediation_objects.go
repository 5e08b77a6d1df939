package evidence

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// resource is a kind of custom resource that somebody else may have installed.
// It is read by plain requests: no typed client, no cache.
type resource struct {
	kind, group, version, plural string
}

var (
	networkFences           = resource{"NetworkFence", "csiaddons.openshift.io", "v1alpha1", "networkfences"}
	networkFenceClasses     = resource{"NetworkFenceClass", "csiaddons.openshift.io", "v1alpha1", "networkfenceclasses"}
	fenceAgentsRemediations = resource{"FenceAgentsRemediation", "fence-agents-remediation.medik8s.io", "v1alpha1", "fenceagentsremediations"}
	selfNodeRemediations    = resource{"SelfNodeRemediation", "self-node-remediation.medik8s.io", "v1alpha1", "selfnoderemediations"}
)

func (r resource) path() string { return "/apis/" + r.group + "/" + r.version + "/" + r.plural }

// list reads all of them live, of all namespaces, into out; false: the cluster
// does not have that kind.
func (r resource) list(ctx context.Context, client rest.Interface, out any) (there bool, err error) {
	return r.read(ctx, client, r.path(), out)
}

// get reads a cluster-scoped one live; false: it is not there.
func (r resource) get(ctx context.Context, client rest.Interface, name string, out any) (there bool, err error) {
	return r.read(ctx, client, r.path()+"/"+name, out)
}

func (r resource) read(ctx context.Context, client rest.Interface, path string, out any) (bool, error) {
	body, err := client.Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx).Raw()
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot read %ss (%s.%s): %w", r.kind, r.plural, r.group, err)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return false, fmt.Errorf("cannot understand %ss (%s.%s): %w", r.kind, r.plural, r.group, err)
	}
	return true, nil
}

// watch streams the changes after that version.
func (r resource) watch(ctx context.Context, client rest.Interface, version string) (io.ReadCloser, error) {
	return client.Get().AbsPath(r.path()).SetHeader("Accept", "application/json").
		Param("watch", "true").Param("allowWatchBookmarks", "true").Param("resourceVersion", version).Stream(ctx)
}

// metadata is what all objects have.
type metadata struct {
	Name              string            `json:"name"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	DeletionTimestamp *string           `json:"deletionTimestamp"`
	Annotations       map[string]string `json:"annotations"`
}

// list of objects of one kind.
type objectList[T any] struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Items []T `json:"items"`
}

// remediation is what medik8s' two kinds have in common.
type remediation struct {
	Metadata metadata `json:"metadata"`
	Status   struct {
		Phase      string             `json:"phase"`
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// remediatedNode names the node where the object's own name does not (several
// templates for one node).
const remediatedNode = "remediation.medik8s.io/node-name"

func (r *remediation) node() string {
	if name := r.Metadata.Annotations[remediatedNode]; name != "" {
		return name
	}
	return r.Metadata.Name
}

func (r *remediation) condition(kind string) *metav1.Condition {
	for i := range r.Status.Conditions {
		if c := &r.Status.Conditions[i]; c.Type == kind && c.Status == metav1.ConditionTrue {
			return c
		}
	}
	return nil
}

package sidecar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	noderecord "github.com/csi-fencepost/csi-fencepost/fence/record"
)

const (
	// rightsAgain is the pause before it is asked again for what was missing.
	rightsAgain = 5 * time.Second
	// rightsTimeout bounds asking once.
	rightsTimeout = 30 * time.Second
)

// CheckRights asks the Kubernetes API whether this process may do all that its mode
// needs (deploy/rbac), with authorizes also what --http-authorization needs, and, where it
// writes records, whether their namespace is there and it may vouch for the fences that its
// agents make, those of the driver's own storage included.
// It asks until nothing is missing, or ctx ends, and logs what is. check, for
// Readiness.Set, says it too.
//
// It decides nothing: what may not be read is not judged by, and what may not be
// written is refused, whatever is said here. It says at the start what would
// otherwise be found out in an incident.
func CheckRights(ctx context.Context, api *rest.Config, c *config.Configuration, driver string, authorizes bool) (check func() error, err error) {
	return checkRights(ctx, api, RightsOf(c), authorizes, &rights{config: c, driver: driver,
		way: fmt.Sprintf("apply what deploy/rbac has for mode %s%%s (csi-fencepost inject writes it), for this service account in this namespace", c.Mode)})
}

// RightsOf are the manifests (deploy/rbac) of what a sidecar with that configuration may do.
func RightsOf(c *config.Configuration) func(deploy.Names) ([]byte, error) {
	switch {
	case c.Mode == config.Enforce && c.Failover.Enabled:
		return deploy.Failover
	case c.Mode == config.Enforce:
		return deploy.Enforce
	}
	return deploy.Observe
}

// CheckApartRights is CheckRights of failover as a process of its own (deploy/failover).
func CheckApartRights(ctx context.Context, api *rest.Config, c *config.Configuration, authorizes bool) (check func() error, err error) {
	return checkRights(ctx, api, deploy.Apart, authorizes, &rights{config: c,
		way: "apply deploy/failover/rbac.yaml%s, or name this service account in its bindings"})
}

func checkRights(ctx context.Context, api *rest.Config, render func(deploy.Names) ([]byte, error), authorizes bool, r *rights) (check func() error, err error) {
	if r.client, err = kubernetes.NewForConfig(rest.CopyConfig(api)); err != nil {
		return nil, err
	}
	needed, err := deploy.Rights(render)
	if err != nil {
		return nil, err
	}
	if authorizes {
		more, err := deploy.Rights(deploy.Authorization)
		if err != nil {
			return nil, err
		}
		needed = append(needed, more...)
	}
	r.missing, r.authorizes = needed, authorizes
	r.found.Store(new(errors.New("it is not known yet whether any is missing")))
	go r.run(ctx)
	return func() error { return *r.found.Load() }, nil
}

// rights is what is asked for.
type rights struct {
	client  kubernetes.Interface
	config  *config.Configuration
	driver  string                               // empty: all of them
	way     string                               // what a person does about a missing right; %s: what more is to be applied
	missing []authorizationv1.ResourceAttributes // as far as is known
	found   atomic.Pointer[error]                // what to say of it

	authorizes bool
}

func (r *rights) run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for said := ""; ctx.Err() == nil; {
		err := r.ask(ctx)
		r.found.Store(&err)
		if err == nil {
			return
		}
		if err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			logger.Error(err, "A right is missing", "mode", r.config.Mode)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rightsAgain):
		}
	}
}

// ask asks once for everything that was missing so far. Where it may not ask, nothing is
// known to be missing, and nothing is said to be there.
func (r *rights) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	var missing []authorizationv1.ResourceAttributes
	for _, right := range r.missing {
		if right.Namespace == config.Default().Fencing.Namespace {
			right.Namespace = r.config.Fencing.Namespace
		}
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right}}
		answer, err := r.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		switch {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			klog.FromContext(ctx).Info("Whether a right is missing is not for csi-fencepost to ask here", "err", err)
			return nil
		case err != nil:
			return fmt.Errorf("whether any is missing is not known: %w", err)
		case !answer.Status.Allowed:
			missing = append(missing, right)
		}
	}
	r.missing = missing
	err := errors.Join(r.lacks(ctx), r.unwritable(ctx))
	if err == nil {
		klog.FromContext(ctx).Info("Every right is there", "mode", r.config.Mode)
	}
	return err
}

// lacks names the missing rights, and whose they are not.
func (r *rights) lacks(ctx context.Context) error {
	if len(r.missing) == 0 {
		return nil
	}
	who := "the service account"
	if self, err := r.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); err == nil {
		who = self.Status.UserInfo.Username
	}
	also := ""
	if r.authorizes {
		also = ", and deploy/rbac/authorization.yaml for --http-authorization"
	}
	return fmt.Errorf("%s may not %s: "+r.way, who, strings.Join(RightsInWords(r.missing), ", nor "), also)
}

// unwritable says that there is no namespace for the records of the nodes, or that a
// policy (deploy/admission) keeps this account from writing them.
func (r *rights) unwritable(ctx context.Context) error {
	if r.config.Mode != config.Enforce {
		return nil // it writes none
	}
	var fences fence.Kind
	switch {
	case r.config.CutsPower():
		fences = fence.PowerReading
	case r.config.Storage() != nil:
		fences = fence.StorageFence
	}
	err := noderecord.NewStore(r.client.CoordinationV1(), r.config.Fencing.Namespace).Check(ctx, fences, r.driver)
	if noderecord.Nowhere(err) || apierrors.IsForbidden(err) && len(r.missing) == 0 {
		return err
	}
	return nil
}

// RightsInWords are rights as a person says them, the verbs of one resource together.
func RightsInWords(missing []authorizationv1.ResourceAttributes) (words []string) {
	for i := 0; i < len(missing); {
		first, verbs := missing[i], []string(nil)
		for ; i < len(missing); i++ {
			next := missing[i]
			if next.Verb = first.Verb; next != first {
				break
			}
			verbs = append(verbs, missing[i].Verb)
		}
		what := strings.Join(verbs, ", ") + " " + first.Resource
		if first.Group != "" {
			what += "." + first.Group
		}
		if first.Name != "" {
			what += " " + first.Name
		}
		if first.Namespace != "" {
			what += " in namespace " + first.Namespace
		}
		words = append(words, what)
	}
	return words
}

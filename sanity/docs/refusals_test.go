package main

import (
	"context"
	"errors"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/proxy"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
	"github.com/csi-fencepost/csi-fencepost/sanity/guardrig"
)

// guardSays are the refusals that fence/testdata/messages.txt does not have, as a guard
// answers them: those that are found while acting, and that of a living node with the taint.
func guardSays(t *testing.T) (texts []string) {
	t.Helper()
	says := func(err error) { texts = append(texts, status.Convert(err).Message()) }
	asked := func(change func(r *guardrig.Rig)) {
		r := guardrig.Held(t)
		change(r)
		says(r.PublishTo("next"))
	}
	asked(func(r *guardrig.Rig) { r.Attachment("old", guardrig.Now); r.Lists("old", false, false); r.Taint("old") })
	asked(func(r *guardrig.Rig) { r.Annotate("{}") })
	asked(func(r *guardrig.Rig) { r.Annotate(`{"version":2}`) })
	asked(func(r *guardrig.Rig) { r.BeforeRead(1, func() error { return context.DeadlineExceeded }) })

	r := guardrig.New(t, fence.Policy{})
	r.Node("next", guardrig.HourAgo)
	r.Client.PrependReactor("patch", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumes"}, guardrig.PVName, errors.New("cannot patch"))
	})
	says(r.PublishTo("next"))

	r = guardrig.Fenced(t, fence.Policy{}, fence.PowerReading)
	r.UnpublishErr = status.Error(codes.Internal, "the array is throttled")
	says(r.PublishTo("next"))

	says(guardrig.Held(t).UnpublishFrom(""))

	r = guardrig.New(t, fence.Policy{})
	r.Node("next", guardrig.HourAgo)
	bound := guard.Bound(r.Guard, 1)
	publish := func(ctx context.Context, to proxy.Guard, driver proxy.Driver) error {
		r.Look()
		_, err := to.ControllerPublishVolume(ctx, guardrig.PublishOf(guardrig.Handle, guardrig.ID("next")), driver)
		return err
	}
	r.Must(publish(t.Context(), bound, during{r, func() {
		says(publish(t.Context(), r.Guard, r))
		over, end := context.WithCancel(t.Context())
		end()
		says(publish(over, bound, r))
	}}))
	says(publish(t.Context(), r.Guard, during{r, r.Lose}))
	return texts
}

// during is a driver that does something else before it publishes.
type during struct {
	*guardrig.Rig
	first func()
}

func (d during) Publish(ctx context.Context, req *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	d.first()
	return d.Rig.Publish(ctx, req)
}

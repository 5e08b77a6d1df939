package guard

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

// nowhere is the error of a record whose namespace is missing.
func nowhere(t *testing.T) error {
	t.Helper()
	client := fake.NewClientset()
	client.PrependReactor("*", "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "fences")
	})
	err := record.NewStore(client.CoordinationV1(), "fences").Check(t.Context(), "", "")
	if !record.Nowhere(err) {
		t.Fatalf("error %v", err)
	}
	return err
}

// Who waits for the API server to come back, while it was never away, waits for ever.
func TestWhatCannotBeFoundOutNamesWhoseMatterItIs(t *testing.T) {
	pvs := schema.GroupResource{Resource: "persistentvolumes"}
	for want, errs := range map[string][]error{
		"once the API server answers": {context.DeadlineExceeded, apierrors.NewInternalError(errors.New("etcd is away")),
			&url.Error{Op: "Get", URL: "https://10.96.0.1", Err: errors.New("connection refused")}},
		"the right that is named": {apierrors.NewForbidden(pvs, "pv-1", errors.New("no"))},
		"create the namespace":    {nowhere(t)},
		"mend the record":         {&record.GarbledError{Node: "n", Namespace: "fences", Lease: "node-n", Err: errors.New("half of it")}},
		"what the driver says":    {status.Error(codes.Internal, "cannot list")},
		"see to what is named":    {errors.New("node n is cut off from the storage, and the fence agents do not say whether it still is")},
	} {
		for _, err := range errs {
			if got := unblockAPI(fmt.Errorf("volume v: %w", err)); !strings.Contains(got, want) {
				t.Errorf("%v: %q, want %q", err, got, want)
			}
		}
	}
}

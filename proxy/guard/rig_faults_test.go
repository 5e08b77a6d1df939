package guard

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
)

// beforeWrite runs f before the n-th patch of a PersistentVolume from now on, and
// has that patch fail as one does whose test fails.
func (r *rig) beforeWrite(n int, f func()) {
	r.client.PrependReactor("patch", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if n--; n != 0 {
			return false, nil, nil
		}
		f()
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolume"}, pvName, nil)
	})
}

// beforeRead runs f before the n-th read of a PersistentVolume by a call from now on.
func (r *rig) beforeRead(n int, f func() error) {
	r.client.PrependReactor("get", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if n--; n != 0 {
			return false, nil, nil
		}
		err := f()
		return err != nil, nil, err
	})
}

// broken has every request of that kind fail.
func (r *rig) broken(verb, resource string) {
	r.client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(errors.New("etcd is away"))
	})
}

// reads counts the requests for objects of that kind, and says what they were.
func (r *rig) reads(resource string) (names []string) {
	for _, a := range r.client.Actions() {
		if get, ok := a.(clienttesting.GetAction); ok && a.GetResource().Resource == resource && a.GetVerb() == "get" {
			names = append(names, get.GetName())
		}
	}
	return names
}

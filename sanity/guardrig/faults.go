package guardrig

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
)

// BeforeWrite runs f before the n-th patch of a PersistentVolume from now on, and
// has that patch fail as one does whose test fails.
func (r *Rig) BeforeWrite(n int, f func()) {
	r.Client.PrependReactor("patch", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if n--; n != 0 {
			return false, nil, nil
		}
		f()
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolume"}, PVName, nil)
	})
}

// BeforeRead runs f before the n-th read of a PersistentVolume by a call from now on.
func (r *Rig) BeforeRead(n int, f func() error) {
	r.Client.PrependReactor("get", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if n--; n != 0 {
			return false, nil, nil
		}
		err := f()
		return err != nil, nil, err
	})
}

// Broken has every request of that kind fail.
func (r *Rig) Broken(verb, resource string) {
	r.Client.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(errors.New("etcd is away"))
	})
}

// Reads counts the requests for objects of that kind, and says what they were.
func (r *Rig) Reads(resource string) (names []string) {
	for _, a := range r.Client.Actions() {
		if get, ok := a.(clienttesting.GetAction); ok && a.GetResource().Resource == resource && a.GetVerb() == "get" {
			names = append(names, get.GetName())
		}
	}
	return names
}

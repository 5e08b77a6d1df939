package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// policyKey is the annotation of a webhook configuration with the manifests of its policy and of the
// policy's binding.
const policyKey = "csi-fencepost.io/policy"

var (
	mutates   = admissionv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")
	validates = admissionv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations")
	kinds     = []schema.GroupVersionResource{mutates, validates}
)

// hooks are the webhook configurations that have the API server call this program's Service, and the
// policies that they carry. They are read by a watch: what a release of the chart changes of them holds
// without a restart.
type hooks struct {
	client             dynamic.Interface
	namespace, service string // of the Service

	informers map[schema.GroupVersionResource]cache.SharedIndexInformer
	// changed has an element once they were read anew.
	changed chan struct{}
	current atomic.Pointer[policies]
	loaded  map[string]policies // by their manifests, so that a new caBundle compiles nothing anew
}

// A hook is one of them. Of a ValidatingWebhookConfiguration, too: the fields that are read here have the
// same names there.
type hook struct {
	kind schema.GroupVersionResource
	admissionv1.MutatingWebhookConfiguration
}

// watch returns once all are read, and goes on until ctx ends.
func (h *hooks) watch(ctx context.Context) error {
	h.informers, h.changed = map[schema.GroupVersionResource]cache.SharedIndexInformer{}, make(chan struct{}, 1)
	seen := make(chan struct{}, 1)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(h.client, 0)
	for _, kind := range kinds {
		h.informers[kind] = factory.ForResource(kind).Informer()
		if _, err := h.informers[kind].AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { notice(seen) }, UpdateFunc: func(any, any) { notice(seen) }, DeleteFunc: func(any) { notice(seen) },
		}); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	for kind, read := range factory.WaitForCacheSync(ctx.Done()) {
		if !read {
			return fmt.Errorf("%s were not read: %w", kind.Resource, ctx.Err())
		}
	}
	h.load(ctx)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-seen:
				h.load(ctx)
				notice(h.changed)
			}
		}
	}()
	return nil
}

func notice(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// list is what was read last.
func (h *hooks) list() (all []hook, err error) {
	for _, kind := range kinds {
		for _, o := range h.informers[kind].GetStore().List() {
			one := hook{kind: kind}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.(*unstructured.Unstructured).Object, &one.MutatingWebhookConfiguration); err != nil {
				return nil, err
			}
			if h.calls(one) {
				all = append(all, one)
			}
		}
	}
	return all, nil
}

// calls tells whether all its webhooks call this program's Service, and it says by which policy to
// answer.
func (h *hooks) calls(one hook) bool {
	return one.Annotations[policyKey] != "" && len(one.Webhooks) > 0 && !slices.ContainsFunc(one.Webhooks, func(w admissionv1.MutatingWebhook) bool {
		return w.ClientConfig.Service == nil || w.ClientConfig.Service.Namespace != h.namespace || w.ClientConfig.Service.Name != h.service
	})
}

// path is that of its policy: one of its own name and kind. There is no other object of that name and
// kind, so nobody answers for it but who may write it.
func (h hook) path() string {
	if h.kind == mutates {
		return "/mutate/" + h.Name
	}
	return "/validate/" + h.Name
}

// load takes the policies of all of them. A policy that is wrong is not there, for which its failurePolicy is.
func (h *hooks) load(ctx context.Context) {
	all, err := h.list()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read the webhook configurations")
		return
	}
	loaded, current := map[string]policies{}, policies{}
	for _, one := range all {
		text := one.Annotations[policyKey]
		of, known := h.loaded[text]
		if !known {
			if of, err = load([]byte(text)); err == nil && of[one.path()] == nil {
				err = errors.New("there is none of the configuration's name and kind")
			}
			if err != nil {
				klog.FromContext(ctx).Error(err, "A policy is wrong, and nobody gets an answer by it", "resource", one.kind.Resource, "name", one.Name, "annotation", policyKey)
			} else {
				klog.FromContext(ctx).Info("Answering by a policy", "resource", one.kind.Resource, "name", one.Name)
			}
		}
		loaded[text] = of
		for _, path := range []string{one.path(), one.path() + digest([]byte(text))} {
			if p := of[path]; p != nil {
				current[path] = p
			}
		}
	}
	h.loaded = loaded
	h.current.Store(&current)
}

// trust puts the authority of a certificate into all of them, where it is not in them.
func (h *hooks) trust(ctx context.Context, bundle []byte) error {
	all, err := h.list()
	errs := []error{err}
	for _, one := range all {
		var lacking []string
		for _, w := range one.Webhooks {
			if !bytes.Equal(w.ClientConfig.CABundle, bundle) {
				lacking = append(lacking, w.Name)
			}
		}
		if len(lacking) > 0 {
			_, err := h.client.Resource(one.kind).Patch(ctx, one.Name, types.StrategicMergePatchType, bundlePatch(lacking, bundle), metav1.PatchOptions{})
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// bundlePatch changes nothing but the bundle of these webhooks, whose name is the key of their list.
func bundlePatch(names []string, bundle []byte) []byte {
	type webhook struct {
		Name         string `json:"name"`
		ClientConfig struct {
			CABundle []byte `json:"caBundle"`
		} `json:"clientConfig"`
	}
	var patch struct {
		Webhooks []webhook `json:"webhooks"`
	}
	for _, name := range names {
		w := webhook{Name: name}
		w.ClientConfig.CABundle = bundle
		patch.Webhooks = append(patch.Webhooks, w)
	}
	text, err := json.Marshal(patch)
	if err != nil {
		panic(err) // names and bytes
	}
	return text
}

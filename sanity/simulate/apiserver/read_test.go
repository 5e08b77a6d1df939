package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
)

func TestJSONAndProtobufClientsSeeTheSame(t *testing.T) {
	s, c := newServer(t)
	cfg := s.Config("json", Open)
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, ""
	j := kubernetes.NewForConfigOrDie(cfg)
	pv := aVolume("pv1")
	pv.Annotations = map[string]string{"text": "ü <&> \"quoted\""}
	Put(s, pv)
	Put(s, aPod("p", "n1"))
	Put(s, anAttachment("va"))
	Put(s, aLease("l"))
	Put(s, &corev1.Node{ObjectMeta: meta("n1")})
	Put(s, &storagev1.CSINode{ObjectMeta: meta("n1"), Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "d.example", NodeID: "id1"}}}})
	for what, read := range map[string]func(kubernetes.Interface) (any, error){
		"pv": func(c kubernetes.Interface) (any, error) {
			return c.CoreV1().PersistentVolumes().Get(ctx, "pv1", metav1.GetOptions{})
		},
		"pods": func(c kubernetes.Interface) (any, error) { return c.CoreV1().Pods("").List(ctx, metav1.ListOptions{}) },
		"va": func(c kubernetes.Interface) (any, error) {
			return c.StorageV1().VolumeAttachments().Get(ctx, "va", metav1.GetOptions{})
		},
		"lease": func(c kubernetes.Interface) (any, error) {
			return c.CoordinationV1().Leases("default").Get(ctx, "l", metav1.GetOptions{})
		},
		"nodes": func(c kubernetes.Interface) (any, error) { return c.CoreV1().Nodes().List(ctx, metav1.ListOptions{}) },
		"csi": func(c kubernetes.Interface) (any, error) {
			return c.StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
		},
	} {
		var texts [2]string
		for i, client := range []kubernetes.Interface{c, j} {
			out, err := read(client)
			if err != nil {
				t.Fatal(what, err)
			}
			text, err := json.Marshal(out)
			if err != nil {
				t.Fatal(err)
			}
			texts[i] = string(text)
		}
		if texts[0] != texts[1] {
			t.Errorf("%s: protobuf %s\nJSON %s", what, texts[0], texts[1])
		}
	}
	Put(s, aLease("of-json"))
	l := must[*coordinationv1.Lease](t)(j.CoordinationV1().Leases("default").Get(ctx, "of-json", metav1.GetOptions{}))
	l.Spec.HolderIdentity = new("json")
	must[*coordinationv1.Lease](t)(j.CoordinationV1().Leases("default").Update(ctx, l, metav1.UpdateOptions{}))
}

func TestSelectorsSelect(t *testing.T) {
	s, c := newServer(t)
	Put(s, aPod("a", "n1"))
	Put(s, aPod("b", "n2"))
	labelled := aPod("c", "n1")
	labelled.Labels = map[string]string{"app": "db"}
	Put(s, labelled)
	for _, test := range []struct {
		options metav1.ListOptions
		want    []string
	}{
		{metav1.ListOptions{}, []string{"a", "b", "c"}},
		{metav1.ListOptions{FieldSelector: "spec.nodeName=n1"}, []string{"a", "c"}},
		{metav1.ListOptions{FieldSelector: "spec.nodeName!=n1"}, []string{"b"}},
		{metav1.ListOptions{FieldSelector: "metadata.name=b"}, []string{"b"}},
		{metav1.ListOptions{LabelSelector: "app=db"}, []string{"c"}},
		{metav1.ListOptions{LabelSelector: "!app", FieldSelector: "spec.nodeName=n1"}, []string{"a"}},
	} {
		var got []string
		for _, p := range must[*corev1.PodList](t)(c.CoreV1().Pods("").List(ctx, test.options)).Items {
			got = append(got, p.Name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%v: got %v, want %v", test.options, got, test.want)
		}
	}
	_, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.hostname=x"})
	wantReason(t, err, 400, metav1.StatusReasonBadRequest)
}

func TestPagesShowOneStateAndExpire(t *testing.T) {
	s, c := newServer(t)
	for i := range 5 {
		Put(s, &corev1.Node{ObjectMeta: meta(fmt.Sprint("n", i))})
	}
	page := must[*corev1.NodeList](t)(c.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 2}))
	if len(page.Items) != 2 || page.Continue == "" || *page.RemainingItemCount != 3 {
		t.Fatalf("the first page has %d, continue %q, remaining %v", len(page.Items), page.Continue, page.RemainingItemCount)
	}
	if err := Remove[*corev1.Node](s, "", "n4", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	rest := must[*corev1.NodeList](t)(c.CoreV1().Nodes().List(ctx, metav1.ListOptions{Continue: page.Continue}))
	if len(rest.Items) != 3 || rest.Items[2].Name != "n4" || rest.ResourceVersion != page.ResourceVersion {
		t.Errorf("the rest has %d at %s, want 3 at %s", len(rest.Items), rest.ResourceVersion, page.ResourceVersion)
	}
	s.Compact()
	_, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{Continue: page.Continue})
	wantReason(t, err, 410, metav1.StatusReasonExpired)
}

func TestAVersionOfTheFutureIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // client-go tries again and again
		_, c := newServer(t)
		_, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "99999"})
		if !apierrors.IsTimeout(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAnOlderStateIsShownOnlyToWhoAcceptsIt(t *testing.T) {
	s := New(Options{})
	old := Put(s, &corev1.Node{ObjectMeta: meta("n1")})
	then := s.Version()
	if _, err := Change(s, "", "n1", func(n *corev1.Node) { n.Spec.Unschedulable = true }); err != nil {
		t.Fatal(err)
	}
	Put(s, &corev1.Node{ObjectMeta: meta("n2")})
	c := clientOf(t, s, "client", gateOf{admit: func(context.Context, Request) Fate { return Fate{At: then} }})
	n := must[*corev1.Node](t)(c.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{ResourceVersion: "0"}))
	if n.ResourceVersion != old.ResourceVersion || n.Spec.Unschedulable {
		t.Errorf("got version %s, want %s", n.ResourceVersion, old.ResourceVersion)
	}
	if list := must[*corev1.NodeList](t)(c.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})); len(list.Items) != 1 || list.ResourceVersion != fmt.Sprint(then) {
		t.Errorf("the list has %d at %s, want 1 at %d", len(list.Items), list.ResourceVersion, then)
	}
	if len(s.Complaints()) != 0 {
		t.Fatal(s.Complaints())
	}
	for _, o := range []metav1.GetOptions{{}, {ResourceVersion: fmt.Sprint(then + 1)}} {
		before := len(s.Complaints())
		_, err := c.CoreV1().Nodes().Get(ctx, "n1", o)
		wantReason(t, err, 501, "NotModelled")
		if len(s.Complaints()) != before+1 {
			t.Errorf("%v: no complaint", o)
		}
	}
}

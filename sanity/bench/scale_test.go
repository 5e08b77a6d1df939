package main

import (
	"math"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestTheObjectsHaveTheSizeOfRealOnes(t *testing.T) {
	c := &cluster{driver: driverName, nodes: 500, volumes: 10_000}
	for what, size := range map[string]struct{ got, want int }{
		"a PersistentVolume": {c.volume(9_999).Size(), volumeBytes}, "a VolumeAttachment": {c.attachment(9_999).Size(), attachmentBytes}} {
		if off := float64(size.got)/float64(size.want) - 1; math.Abs(off) > sizeTolerance {
			t.Errorf("%s has %d bytes, %+.0f %% of %d", what, size.got, 100*off, size.want)
		}
		t.Logf("%s has %d bytes", what, size.got)
	}
}

// What stands in a page is what client-go reads of it, and the pages together are
// the list.
func TestAPagedListIsReadByClientGo(t *testing.T) {
	server := feign(&cluster{driver: driverName, nodes: 3, volumes: 25, paged: true})
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}})
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	if _, err := client.CoreV1().PersistentVolumes().Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true}); !apierrors.IsInvalid(err) {
		t.Errorf("a list that is to be streamed: %v, want a refusal", err)
	}
	var names []string
	pages := 0
	for next := "-"; next != ""; pages++ {
		list, err := client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{Limit: 10, Continue: strings.Trim(next, "-")})
		if err != nil {
			t.Fatal(err)
		}
		for _, pv := range list.Items {
			names = append(names, pv.Name)
		}
		next = list.Continue
	}
	if want := server.pvName(24); pages != 3 || len(names) != 25 || names[24] != want {
		t.Errorf("%d pages with %d names, the last %q; want 3 with 25, the last %q", pages, len(names), names[len(names)-1], want)
	}
}

func TestAGoalIsReachedAtItsLimit(t *testing.T) {
	b := &bench{}
	b.limit("memory", 40, 40, "MiB")
	b.limit("memory", 40, 40.04, "MiB")
	b.least("sooner", 2, 2, "times as long")
	b.least("sooner", 2, 1.96, "times as long")
	var reached []bool
	for _, g := range b.goals {
		reached = append(reached, g.Reached)
	}
	if want := []bool{true, false, true, false}; !slices.Equal(reached, want) {
		t.Errorf("%v, want %v", reached, want)
	}
	text := page([]result{{Section: "scale", Goals: b.goals}})
	for _, want := range []string{"| section | goal | wanted | measured | reached |", "| [scale](#scale) | memory | at most 40 MiB | 40.0 MiB | yes |", "at least 2 times as long | 2.0 times as long | **no** |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
}

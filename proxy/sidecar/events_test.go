package sidecar

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestEventsOfAStormLeaveLittleMemoryBehind(t *testing.T) {
	var written atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(event) // as it is kept
		written.Add(1)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	recorder := newRecorder(t.Context(), client, "storm.example.com")
	const batch, batches = 500, 6
	storm := func(n int) {
		for i := range batch {
			name := fmt.Sprintf("pod-%d-%d", n, i)
			recorder.Event(&corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: name, UID: types.UID(name)}, corev1.EventTypeNormal, "Moved", name+strings.Repeat(" was moved", 40))
		}
		for end := time.Now().Add(10 * time.Second); written.Load() < int64((n+1)*batch); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d Events arrived, want %d", written.Load(), (n+1)*batch)
			}
		}
	}
	storm(0)
	before := heapInUse()
	for n := 1; n < batches; n++ {
		storm(n)
	}
	if grew := heapInUse() - before; grew > 2<<20 {
		t.Errorf("after %d Events more the heap has %d KiB more, want 2048 at most", (batches-1)*batch, grew>>10)
	}
	runtime.KeepAlive(recorder)
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // pools outlive one collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// `kubectl describe` shows an Event as it is.
func TestAnEventIsNoMoreThanText(t *testing.T) {
	written := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(event)
		written <- string(event)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	recorder := newRecorder(t.Context(), client, "disk.example.com")
	pod := &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "a", UID: "u"}
	recorder.Event(pod, corev1.EventTypeNormal, "Said", "event \x1b[2J\u202eend")
	recorder.Eventf(pod, corev1.EventTypeNormal, "Formatted", "event %s", "\x1b[2J\u202eend")
	recorder.AnnotatedEventf(pod, nil, corev1.EventTypeNormal, "Annotated", "event %s", "\x1b[2J\u202eend")
	for range 3 {
		if event := <-written; !strings.Contains(event, `"event  [2J end"`) {
			t.Errorf("written: %q", event)
		}
	}
}

func TestReadyzIsNoMoreThanText(t *testing.T) {
	r := &Readiness{}
	r.Set("driver", NotReady("it says \x1b[2J\u202eno"))
	answer := httptest.NewRecorder()
	r.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	if got := answer.Body.String(); got != "[-] driver: it says  [2J no\n" {
		t.Errorf("answered %q", got)
	}
}

package sidecar

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/simulate/apiserver"
)

// A sidecar apart whose questions nobody answers refuses, and stays ready: without this nothing
// but those refusals would show it.
func TestThatNobodyAnswersIsCountedAndShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New(apiserver.Options{})
		apiserver.Put(server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: config.Default().Fencing.Namespace}})
		client := kubernetes.NewForConfigOrDie(server.Config("sidecar", nil))
		f, in := apartOf(t, client, record.NewStore(client.CoordinationV1(), config.Default().Fencing.Namespace), func(string) {})
		mux := http.NewServeMux()
		in.Metrics.RegisterToServer(mux, "/metrics")
		counted := func(series string) bool {
			t.Helper()
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
			return strings.Contains(w.Body.String(), "\ncsi_fencepost_power_questions_total"+series+"\n")
		}
		if !counted(`{result="unanswered"} 0`) || !counted(`{result="on"} 0`) || in.Board.questions.words() != "" {
			t.Error("before any question the series are not there, or a line is shown")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.asker().Ask(ctx, fencer.Target{Node: "n1", UID: "u1", LeaseRV: "1"}); err == nil {
			t.Fatal("it is answered")
		}
		time.Sleep(2 * time.Minute)
		if !counted(`{result="unanswered"} 1`) || !counted(`{result="unclear"} 0`) {
			t.Error("a question without an answer is not counted so")
		}
		line := strings.Join(in.Board.collect(t.Context()).Notes, "\n")
		for _, want := range []string{"since 2000-01-01T00:01:00Z (the last one about node n1): it does not answer.", "kubectl get pods,leases -n csi-fencepost-failover"} {
			if !strings.Contains(line, want) {
				t.Errorf("the line %q lacks %q", line, want)
			}
		}
		for _, c := range []struct {
			after time.Duration
			note  func()
			since string
		}{
			{10 * time.Minute, func() { in.Board.questions.note("n2", errors.New("x")) }, "since 2000-01-01T00:01:00Z (the last one about node n2): x"},
			{10 * time.Minute, func() {}, "since 2000-01-01T00:01:00Z"},
			{6 * time.Minute, func() {}, ""},
			{0, func() { in.Board.questions.note("n1", nil); in.Board.questions.note("n1", errors.New("y")) }, "since 2000-01-01T00:28:01Z"},
			{0, func() { in.Board.questions.note("n1", nil) }, ""},
		} {
			time.Sleep(c.after)
			c.note()
			if line := in.Board.questions.words(); !strings.Contains(line, c.since) || (line == "") != (c.since == "") {
				t.Errorf("%q, want %q", line, c.since)
			}
		}
	})
}

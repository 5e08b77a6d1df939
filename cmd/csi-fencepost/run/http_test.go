package run

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-fencepost/csi-fencepost/proxy/sidecar"
)

// get asks one of the HTTP endpoint's paths.
func get(t *testing.T, mux http.Handler, path string) (int, string) {
	t.Helper()
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	body, err := io.ReadAll(answer.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Code, string(body)
}

func TestReadyOnlyWhenEveryCheckPasses(t *testing.T) {
	ready := &sidecar.Readiness{}
	mux := newMux(sidecar.NewMetrics(), "/metrics", ready)
	if code, _ := get(t, mux, ReadyPath); code != http.StatusServiceUnavailable {
		t.Errorf("with no check at all: %d", code)
	}
	synced := errors.New("caches are not synced: nodes")
	ready.Set("driver", sidecar.NotReady("it has not answered yet"))
	ready.Set("guard", func() error { return synced })
	code, body := get(t, mux, ReadyPath)
	if want := "[-] driver: it has not answered yet\n[-] guard: caches are not synced: nodes\n"; code != http.StatusServiceUnavailable || body != want {
		t.Errorf("%d %q, want 503 %q", code, body, want)
	}
	ready.Set("driver", func() error { return nil })
	code, body = get(t, mux, ReadyPath)
	if want := "[+] driver\n[-] guard: caches are not synced: nodes\n"; code != http.StatusServiceUnavailable || body != want {
		t.Errorf("%d %q, want 503 %q", code, body, want)
	}
	synced = nil
	if code, body = get(t, mux, ReadyPath); code != http.StatusOK || strings.Contains(body, "[-]") {
		t.Errorf("%d %q, want 200", code, body)
	}
	synced = errors.New("gone again")
	if code, _ = get(t, mux, ReadyPath); code != http.StatusServiceUnavailable {
		t.Errorf("not ready again: %d", code)
	}
}

// A restart by the kubelet mends neither driver nor API server, and ends the
// attacher.
func TestAliveWhetherReadyOrNot(t *testing.T) {
	ready := &sidecar.Readiness{}
	ready.Set("driver", sidecar.NotReady("away"))
	if code, body := get(t, newMux(sidecar.NewMetrics(), "/metrics", ready), healthPath); code != http.StatusOK || body != "ok\n" {
		t.Errorf("%d %q", code, body)
	}
}

func TestMetricsAreThoseOfTheDesign(t *testing.T) {
	m := sidecar.NewMetrics()
	m.SetDriverName("array.example.com")
	m.Decisions("ControllerPublishVolume", "Refuse", "HolderStale")
	m.Decisions("ControllerPublishVolume", "Refuse", "HolderStale")
	m.TakeoverDone(300 * time.Millisecond)
	m.Waiting(map[string]int{"HolderStale": 3, "HolderAlive": 1})
	m.Waiting(map[string]int{"HolderAlive": 2})
	m.LedgerWriteError()
	m.RecordMetrics("/csi.v1.Controller/ControllerPublishVolume", status.Error(codes.FailedPrecondition, "x"), time.Second)
	_, body := get(t, newMux(m, "/custom", &sidecar.Readiness{}), "/custom")
	for _, want := range []string{
		`csi_fencepost_decisions_total{call="ControllerPublishVolume",decision="Refuse",reason="HolderStale"} 2`,
		`csi_fencepost_takeover_duration_seconds_bucket{le="0.25"} 0`,
		`csi_fencepost_takeover_duration_seconds_bucket{le="0.5"} 1`,
		`csi_fencepost_takeover_duration_seconds_count 1`,
		`csi_fencepost_waiting_volumes{reason="HolderAlive"} 2`,
		`csi_fencepost_waiting_volumes{reason="HolderStale"} 0`,
		`csi_fencepost_ledger_write_errors_total 1`,
		`csi_sidecar_operations_seconds_count{driver_name="array.example.com",grpc_status_code="FailedPrecondition",method_name="/csi.v1.Controller/ControllerPublishVolume"} 1`,
		`process_start_time_seconds `,
		`go_goroutines `,
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("not served: %s", want)
		}
	}
}

func TestHTTPAddressInUseIsSaid(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = startHTTP(t.Context(), taken.Addr().String(), http.NewServeMux(), nil)
	if err == nil || !strings.Contains(err.Error(), "--http-endpoint "+taken.Addr().String()) {
		t.Errorf("error %v", err)
	}
}

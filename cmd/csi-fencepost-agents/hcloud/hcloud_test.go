package hcloud_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/hcloud"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/internal/agenttest"
)

// api is Hetzner Cloud's, with two servers in the token's project.
func api(power *agenttest.Power) http.Handler {
	mux := http.NewServeMux()
	server := func(id int64) *schema.Server {
		switch id {
		case 42:
			return &schema.Server{ID: 42, Name: "n1", Status: power.State()}
		case 43:
			return &schema.Server{ID: 43, Name: "n2", Status: "running"}
		}
		return nil
	}
	answer := func(w http.ResponseWriter, r *http.Request, code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer token-of-the-project" {
			code, v = http.StatusUnauthorized, failure("unauthorized", "unable to authenticate")
		}
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /servers/{id}", func(w http.ResponseWriter, r *http.Request) {
		var id int64
		fmt.Sscan(r.PathValue("id"), &id)
		if s := server(id); s != nil {
			answer(w, r, http.StatusOK, schema.ServerGetResponse{Server: *s})
			return
		}
		answer(w, r, http.StatusNotFound, failure("not_found", "server with ID not found"))
	})
	mux.HandleFunc("GET /servers", func(w http.ResponseWriter, r *http.Request) {
		var list schema.ServerListResponse
		for _, id := range []int64{42, 43} {
			if s := server(id); r.FormValue("name") == "" || r.FormValue("name") == s.Name {
				list.Servers = append(list.Servers, *s)
			}
		}
		answer(w, r, http.StatusOK, list)
	})
	mux.HandleFunc("POST /servers/{id}/actions/{action}", func(w http.ResponseWriter, r *http.Request) {
		action := r.PathValue("action")
		power.Send(strings.HasSuffix(action, "off"), r.PathValue("id")+" "+action)
		answer(w, r, http.StatusCreated, schema.ActionGetResponse{Action: schema.Action{ID: 1, Status: "running"}})
	})
	return mux
}

func failure(code, message string) schema.ErrorResponse {
	return schema.ErrorResponse{Error: schema.Error{Code: code, Message: message}}
}

func world(t testing.TB) *agenttest.World {
	power := &agenttest.Power{On: "running", Off: "off", Between: "stopping"}
	power.Set("running")
	server := agenttest.NewServer(t, api(power))
	return &agenttest.World{
		Agent: hcloud.Agent(), Server: server, Power: power,
		Parameters: map[string]string{"token": "token-of-the-project", "endpoint": server.URL, "fingerprint": server.Fingerprint(), "plug": "42"},
		Identities: []string{"42"},
		Names:      "plug", Missing: "4711", Secret: "token",
		SentOff: "42 poweroff", SentOn: "42 poweron",
		Throttled: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			_ = json.NewEncoder(w).Encode(failure("rate_limit_exceeded", "limit of 3600 requests per hour reached"))
		}),
	}
}

func TestHetznerCloud(t *testing.T) {
	agenttest.Suite(t, world, map[string]int{
		"running": 0, "off": 2,
		"initializing": 1, "starting": 1, "stopping": 1, "migrating": 1, "rebuilding": 1, "deleting": 1, "unknown": 1, "": 1, "hibernated": 1,
	})
}

func TestAServerIsNamedByIDProviderIDOrName(t *testing.T) {
	w := world(t)
	for plug, want := range map[string]int{"42": 0, "hcloud://42": 0, "n1": 0, "n3": 1, "hcloud://": 1, "hcloud://042": 1, "0": 1,
		"hrobot://42": 1, "hcloud://bm-321987": 1, "hcloud://n1": 1, "k3s://n1": 1} {
		w.Parameters["plug"] = plug
		if got := agenttest.Run(t, w.Agent, "status", w.Parameters); got.Code != want {
			t.Errorf("%s: exit %d, %s", plug, got.Code, got.Err)
		}
	}
	if got := agenttest.Run(t, w.Agent, "list", w.Parameters); got.Code != 0 || got.Out != "42,n1\n43,n2\n" {
		t.Errorf("list: exit %d, %q, %s", got.Code, got.Out, got.Err)
	}
}

// A list of which the same page is said to be the next one, again and again, has no end; and one of many
// pages is read whole.
func TestAListThatGoesRoundIsAnError(t *testing.T) {
	w := world(t)
	page := func(next func(at int) int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			at, _ := strconv.Atoi(r.FormValue("page"))
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"servers": [{"id": %d, "name": "n"}], "meta": {"pagination": {"page": %d, "next_page": %d}}}`, at, at, next(at))
		})
	}
	w.Server.Refuse(-1, page(func(int) int { return 2 }))
	agenttest.GoesRound(t, w)
	w.Server.Refuse(-1, page(func(at int) int { return at%3 + 1 }))
	agenttest.GoesRound(t, w)
	w.Server.Refuse(-1, page(func(at int) int { return (at + 1) % 4 }))
	if got := agenttest.Run(t, w.Agent, "list", w.Parameters); got.Code != 0 || got.Out != "1,n\n2,n\n3,n\n" {
		t.Errorf("exit %d, %q, %s", got.Code, got.Out, got.Err)
	}
	w.Server.Refuse(-1, page(func(at int) int { return at + 1 }))
	if got := agenttest.Run(t, w.Agent, "list", w.Parameters); got.Code != 1 || !strings.Contains(got.Err, "it has more than 1000 pages") {
		t.Errorf("exit %d, %q, %s", got.Code, got.Out, got.Err)
	}
}

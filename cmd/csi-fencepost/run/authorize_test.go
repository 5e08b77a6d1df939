package run

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
)

// reviewer is a Kubernetes API that knows the token of "prometheus", who may get /metrics.
// With a status it answers that to everything.
type reviewer struct {
	asked  atomic.Int64
	status int
}

func (a *reviewer) RoundTrip(r *http.Request) (*http.Response, error) {
	a.asked.Add(1)
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	switch body, _ := io.ReadAll(r.Body); {
	case a.status != 0:
		w.WriteHeader(a.status)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"10.0.0.1 says no"}`,
			a.status, strings.ReplaceAll(http.StatusText(a.status), " ", ""))
	case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
		var review authenticationv1.TokenReview
		_ = json.Unmarshal(body, &review)
		for _, who := range []string{"prometheus", "tenant"} {
			if review.Spec.Token == "token-of-"+who {
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
					Username: who, UID: "u", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"pod": {"p"}}}}
			}
		}
		_ = json.NewEncoder(w).Encode(review)
	default:
		var review authorizationv1.SubjectAccessReview
		_ = json.Unmarshal(body, &review)
		s := review.Spec
		review.Status.Allowed = s.User == "prometheus" && s.UID == "u" && fmt.Sprint(s.Groups, s.Extra) == "[g] map[pod:[p]]" && s.ResourceAttributes == nil &&
			s.NonResourceAttributes != nil && s.NonResourceAttributes.Verb == "get" && s.NonResourceAttributes.Path == "/metrics"
		_ = json.NewEncoder(w).Encode(review)
	}
	return w.Result(), nil
}

// authorized serves "secret" on every path but the probes', as with --metrics-path=/ and no
// leader election, to whom the API lets.
func authorized(t *testing.T, api *reviewer) func(method, path, header string) (int, string) {
	t.Helper()
	handler := served(t, api)
	return func(method, path, header string) (int, string) {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("Authorization", header)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
}

// served is what serves it.
func served(t *testing.T, api *reviewer) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	for _, path := range []string{"/", "/metrics", "/statusz", "/statusz.json"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "secret") })
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "well") })
	}
	handler, err := authorize(mux,
		&rest.Config{Host: "http://api", Transport: api, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func TestOnlyWhomTheAPILetsSeesMoreThanTheProbes(t *testing.T) {
	for _, c := range []struct {
		path, header string
		status       int // of the API
		code         int
		says         string
	}{
		{"/metrics", "Bearer token-of-prometheus", 0, 200, "secret"},
		{"/metrics", "bearer token-of-prometheus", 0, 200, "secret"},
		{"/metrics", "", 0, 401, "Authorization: Bearer TOKEN"},
		{"/metrics", "Bearer ", 0, 401, "Authorization: Bearer TOKEN"},
		{"/metrics", "Basic token-of-prometheus", 0, 401, "Authorization: Bearer TOKEN"},
		{"/metrics", "token-of-prometheus", 0, 401, "Authorization: Bearer TOKEN"},
		{"/metrics", "Bearer made-up", 0, 401, "does not know this token"},
		{"/metrics", "Bearer token-of-tenant", 0, 403, `"tenant" may not get "/metrics"`},
		{"/statusz", "Bearer token-of-prometheus", 0, 403, `"prometheus" may not get "/statusz"`},
		{"/statusz.json", "", 0, 401, "Bearer"},
		{"/anything", "", 0, 401, "Bearer"},
		{"/healthz/../metrics", "", 0, 401, "Bearer"},
		{"/healthz/", "", 0, 401, "Bearer"},
		{"/healthz", "", 500, 200, "well"},
		{"/readyz", "", 500, 200, "well"},
		{"/healthz/leader-election", "", 0, 401, "Bearer"},
		{"/metrics", "Bearer token-of-prometheus", 403, 503, "lacks the rights of deploy/rbac/authorization.yaml"},
		{"/metrics", "Bearer token-of-prometheus", 500, 503, "does not say who may see this"},
	} {
		code, body := authorized(t, &reviewer{status: c.status})(http.MethodGet, c.path, c.header)
		if code != c.code || !strings.Contains(body, c.says) || code != 200 && strings.Contains(body, "secret") || strings.Contains(body, "10.0.0.1") {
			t.Errorf("%s with %q, the API answering %d: %d %q, want %d %q", c.path, c.header, c.status, code, body, c.code, c.says)
		}
	}
	if code, _ := authorized(t, &reviewer{})(http.MethodPost, "/metrics", "Bearer token-of-prometheus"); code != 403 {
		t.Errorf("POST by one who may get: %d", code)
	}
}

// An API server that is away closes the metrics within a minute, and opens nothing.
func TestWhoWasLetInIsAskedAboutAgainAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &reviewer{}
		ask := authorized(t, api)
		want := func(code int, asked int64) {
			t.Helper()
			before := api.asked.Load()
			if got, body := ask(http.MethodGet, "/metrics", "Bearer token-of-prometheus"); got != code || api.asked.Load()-before != asked {
				t.Errorf("%d %s after %d questions, want %d after %d", got, body, api.asked.Load()-before, code, asked)
			}
		}
		want(200, 2)
		want(200, 0)
		api.status = 500
		want(200, 0)
		if code, _ := ask(http.MethodGet, "/statusz", "Bearer token-of-prometheus"); code != 503 {
			t.Errorf("another path: %d", code)
		}
		time.Sleep(61 * time.Second)
		want(503, 1)
		api.status = 0
		want(200, 2)
	})
}

func TestMadeUpTokensDoNotFloodTheAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &reviewer{}
		ask := authorized(t, api)
		ask(http.MethodGet, "/metrics", "Bearer token-of-prometheus")
		began, before := time.Now(), api.asked.Load()
		for i := range 200 {
			go func() { ask(http.MethodGet, "/metrics", fmt.Sprintf("Bearer made-up-%d", i)) }()
		}
		synctest.Wait()
		if code, _ := ask(http.MethodGet, "/metrics", "Bearer token-of-prometheus"); code != 200 || time.Since(began) > time.Second {
			t.Errorf("%d after %s: who is known waits behind a flood", code, time.Since(began))
		}
		time.Sleep(10 * time.Second)
		if asked := api.asked.Load() - before; asked > reviewBurst+reviewQPS*int64(reviewTimeout/time.Second) {
			t.Errorf("the API was asked %d times", asked)
		}
	})
}

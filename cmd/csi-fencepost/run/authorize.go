package run

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	csileader "github.com/kubernetes-csi/csi-lib-utils/leaderelection"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// allowedFor is how long one who was let in is not asked about again, and so how long
	// a right that is taken from him still holds.
	allowedFor = time.Minute
	// maxAllowed is more than a cluster has scrapers. Only who is let in takes a place.
	maxAllowed = 100

	// A flood of made-up tokens asks the API server no faster than this.
	reviewQPS, reviewBurst = 5, 10
	reviewTimeout          = 5 * time.Second
)

// openPaths are asked for by kubelets, which send no token.
var openPaths = []string{healthPath, ReadyPath, csileader.HealthCheckerAddress}

// authorization serves openPaths to everybody, and all else to those whose bearer token
// the Kubernetes API knows and lets use that method on that path (nonResourceURLs). What
// the API does not say, whatever the reason, is no.
type authorization struct {
	mux     *http.ServeMux
	client  kubernetes.Interface
	allowed *cache.LRUExpireCache // keys are requests
}

// request has the hash of a token, so that no token is kept.
type request struct {
	token      [sha256.Size]byte
	verb, path string
}

// authorize wraps what is served. The client is its own: requests of the guard do not queue
// behind those for strangers.
func authorize(mux *http.ServeMux, api *rest.Config) (http.Handler, error) {
	api = rest.CopyConfig(api)
	api.QPS, api.Burst = reviewQPS, reviewBurst
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return nil, err
	}
	return &authorization{mux, client, cache.NewLRUExpireCache(maxAllowed)}, nil
}

func (a *authorization) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code, why := http.StatusOK, ""
	// The path is not enough: with --metrics-path=/ an open one that nobody serves has metrics.
	if _, pattern := a.mux.Handler(r); !slices.Contains(openPaths, pattern) {
		code, why = a.judge(r)
	}
	switch code {
	case http.StatusOK:
		a.mux.ServeHTTP(w, r)
		return
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	http.Error(w, why, code)
}

// judge returns http.StatusOK, or another code and why.
func (a *authorization) judge(r *http.Request) (code int, why string) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return http.StatusUnauthorized, "a token of the Kubernetes API is needed, as the header Authorization: Bearer TOKEN"
	}
	asked := request{sha256.Sum256([]byte(token)), strings.ToLower(r.Method), r.URL.Path}
	if _, known := a.allowed.Get(asked); known {
		return http.StatusOK, ""
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	ctx = klog.NewContext(ctx, logr.Discard()) // at -v=8 the client logs what it sends: the token
	review, err := a.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return unknown(err)
	case !review.Status.Authenticated:
		return http.StatusUnauthorized, "the Kubernetes API does not know this token"
	}
	access, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, asked.by(review.Status.User), metav1.CreateOptions{})
	switch {
	case err != nil:
		return unknown(err)
	case !access.Status.Allowed:
		return http.StatusForbidden, fmt.Sprintf("%q may not %s %q: a ClusterRole has to name them in verbs and nonResourceURLs", review.Status.User.Username, asked.verb, asked.path)
	}
	a.allowed.Add(asked, nil, allowedFor)
	return http.StatusOK, ""
}

// by is the question whether a user may do what is asked.
func (r request) by(user authenticationv1.UserInfo) *authorizationv1.SubjectAccessReview {
	extra := map[string]authorizationv1.ExtraValue{}
	for name, value := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(value)
	}
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: r.path, Verb: r.verb},
	}}
}

// unknown is the answer where the API has not said who it is, or what he may. The error
// may name addresses and accounts, which are not for a stranger.
func unknown(err error) (code int, why string) {
	if apierrors.IsForbidden(err) {
		return http.StatusServiceUnavailable, "csi-fencepost may not ask the Kubernetes API who may see this: it lacks the rights of deploy/rbac/authorization.yaml"
	}
	return http.StatusServiceUnavailable, "the Kubernetes API does not say who may see this"
}

package kubeapi

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
	"github.com/csi-fencepost/csi-fencepost/sanity/controlplane"
)

// scraper may get /metrics and nothing else.
const scraper = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scraper}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scraper}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scraper}
subjects:
- {kind: ServiceAccount, name: prometheus, namespace: authorization}
- {kind: ServiceAccount, name: late, namespace: authorization}
`

// dumped are the bytes of a body in the log, a line of them.
var dumped = regexp.MustCompile(`\|(.{16})\|\n`)

// token of a service account of the stage, which is made for it.
func (r *rig) token(account string, audiences ...string) string {
	r.t.Helper()
	accounts := r.Client.CoreV1().ServiceAccounts(r.Name)
	_, err := accounts.Create(r.ctx(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	r.must(err)
	seconds := int64(600)
	made, err := accounts.CreateToken(r.ctx(), account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, Audiences: audiences}}, metav1.CreateOptions{})
	r.must(err)
	return made.Status.Token
}

// gets asks over TLS, with a token unless it is empty.
func (r *rig) gets(p *controlplane.Process, path, token string) string {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.ctx(), http.MethodGet, "https://"+r.HTTPAddress(p)+path, nil)
	r.must(err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	resp, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	r.must(err)
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

func TestMetricsAreForThoseWhomTheAPIServerLetsAndForNobodyWhileItIsAway(t *testing.T) {
	staged.take(t)
	o := bed.StageOptions{Nodes: -1, Manual: true}
	r := &rig{t: t, Stage: ownServer(t).Stage(t, "authorization", o)}
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	r.must(err)
	r.must(os.WriteFile(r.Socket("tls.crt"), certificate, 0o600))
	r.must(os.WriteFile(r.Socket("tls.key"), key, 0o600))
	r.Options.FencepostArgs = append(withHTTP, "--tls-cert-file="+r.Socket("tls.crt"), "--tls-private-key-file="+r.Socket("tls.key"), "--http-authorization",
		"--leader-election", "--leader-election-namespace="+r.Name, "--v=8")
	r.Apply([]byte(scraper))
	tokens := map[string]string{"nobody": "", "a made-up one": "made-up"}
	for _, who := range []string{"prometheus", "tenant", "late"} {
		tokens[who] = r.token(who)
	}
	tokens["another audience"] = r.token("elsewhere", "vault")
	p := r.start("fp")
	wants := func(who, path string, code int, says string) {
		t.Helper()
		got := r.gets(p, path, tokens[who])
		if !strings.HasPrefix(got, fmt.Sprint(code)) || !strings.Contains(got, says) || code != 200 && strings.Contains(got, "go_goroutines") {
			t.Errorf("%s gets %s: %s, want %d %s", who, path, got, code, says)
		}
	}
	ready := func(says string) {
		t.Helper()
		r.WaitFor(30*time.Second, "/readyz says "+says, func() bool { return strings.Contains(r.gets(p, "/readyz", ""), says) })
	}

	// The right to ask is missing: that is said, and nobody sees anything.
	ready("[-] rights: system:serviceaccount:authorization:driver-controller may not create tokenreviews.authentication.k8s.io, nor create subjectaccessreviews.authorization.k8s.io: " +
		"apply what deploy/rbac has for mode Enforce, and deploy/rbac/authorization.yaml for --http-authorization")
	wants("prometheus", "/metrics", 503, "lacks the rights of deploy/rbac/authorization.yaml")
	wants("nobody", "/healthz", 200, "ok")

	r.given(deploy.Authorization)
	ready("[+] rights")
	wants("prometheus", "/metrics", 200, "go_goroutines")
	wants("prometheus", "/statusz", 403, `"system:serviceaccount:authorization:prometheus" may not get "/statusz"`)
	wants("prometheus", "/statusz.json", 403, "may not get")
	for who, code := range map[string]int{"nobody": 401, "a made-up one": 401, "another audience": 401, "tenant": 403} {
		for _, path := range []string{"/metrics", "/statusz", "/statusz.json?format=json", "/"} {
			wants(who, path, code, "")
		}
		for _, path := range []string{"/healthz", "/readyz", "/healthz/leader-election"} {
			wants(who, path, 200, "")
		}
	}
	if got := r.gets(p, "/metrics", "made-up"); !strings.Contains(got, "does not know") {
		t.Error(got)
	}

	r.Bed.Cluster.StopAPIServer()
	wants("late", "/metrics", 503, "does not say who may see this")
	wants("tenant", "/metrics", 503, "")
	wants("nobody", "/metrics", 401, "")
	wants("nobody", "/healthz", 200, "ok")
	r.must(r.Bed.Cluster.StartAPIServer(r.ctx()))
	log := r.LogOf(p)
	if !strings.Contains(log, `"Request Body"`) {
		t.Error("the log has no bodies of requests: nothing is shown of tokens")
	}
	for _, line := range dumped.FindAllStringSubmatch(log, -1) {
		log += line[1]
	}
	for who, token := range tokens {
		if token != "" && strings.Contains(log, token) {
			t.Errorf("the token of %s is in the log", who)
		}
	}
}

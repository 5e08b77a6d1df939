package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/oauth2"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Account is the service account whose tokens kubelets are asked with, in the namespace of the
// nodes' records (deploy/rbac/kubelet.yaml).
const Account = "csi-fencepost-kubelet"

const (
	// timeout of one question. A kubelet that takes longer is not waited for: calls may wait.
	timeout = 2 * time.Second
	// lifetime of a token is the shortest that the API server gives; renewal is how long before
	// its end another one is asked for.
	lifetime = 10 * time.Minute
	renewal  = 2 * time.Minute
	// maxAnswer bounds what is read of an answer: a large node's has about a megabyte.
	maxAnswer = 32 << 20
)

// ErrNoToken: there is no token to ask with, as where Account is missing. It is the same for all
// kubelets.
var ErrNoToken = errors.New("no token of service account " + Account)

// Client asks kubelets. It is safe for concurrent use.
type Client struct {
	tokens oauth2.TokenSource
	http   *http.Client
}

// NewClient asks with tokens of Account in that namespace, which api is asked for when one is
// needed.
func NewClient(api kubernetes.Interface, namespace string) *Client {
	return &Client{
		tokens: oauth2.ReuseTokenSourceWithExpiry(nil, &tokens{api, namespace}, renewal),
		http: &http.Client{
			Timeout: timeout,
			Transport: &http.Transport{
				// Nothing tells before who has to be there: what is told by the key is told
				// afterwards (Process.Key). No proxy is told the token.
				TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12},
				DisableKeepAlives: true, // the process that answers is the one that listens now
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

type tokens struct {
	api       kubernetes.Interface
	namespace string
}

// Token implements oauth2.TokenSource.
func (t *tokens) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	seconds := int64(lifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := t.api.CoreV1().ServiceAccounts(t.namespace).CreateToken(ctx, Account, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("%w in namespace %s: %w", ErrNoToken, t.namespace, err)
	}
	return &oauth2.Token{AccessToken: answer.Status.Token, Expiry: time.Now().Add(lifetime)}, nil
}

// An Answer is what a kubelet said of its process.
type Answer struct {
	Process fence.Process
	// Age of the process when it answered, by its own clock.
	Age time.Duration
}

// Ask asks the kubelet of a Node, within two seconds. An error says why nothing is known of its
// process: ErrNoToken, that nobody answers at the Node's address, or how the answer is not that
// kubelet's.
func (c *Client) Ask(ctx context.Context, node *corev1.Node) (*Answer, error) {
	host, err := address(node)
	if err != nil {
		return nil, err
	}
	token, err := c.tokens.Token()
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	token.SetAuthHeader(request)
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("https://%s/metrics: %s", host, response.Status)
	}
	answer, err := read(response.Body, node.Name)
	if err != nil {
		return nil, fmt.Errorf("https://%s/metrics: %w", host, err)
	}
	key := sha256.Sum256(response.TLS.PeerCertificates[0].RawSubjectPublicKeyInfo)
	answer.Key = base64.StdEncoding.EncodeToString(key[:])
	now, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return nil, fmt.Errorf("https://%s/metrics has no time at which it was answered: %w", host, err)
	}
	age := now.Sub(time.UnixMilli(int64(answer.Start * 1000)))
	return &Answer{Process: *answer, Age: age}, nil
}

// address of the kubelet's server: a single IP address, and never a name that somebody would
// have to be asked for.
func address(node *corev1.Node) (string, error) {
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port < 1 || port > math.MaxUint16 {
		return "", fmt.Errorf("node %s says no port of its kubelet", node.Name)
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range node.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); a.Type == kind && err == nil && ip.Zone() == "" {
				return net.JoinHostPort(ip.String(), strconv.Itoa(int(port))), nil
			}
		}
	}
	return "", fmt.Errorf("node %s says no address", node.Name)
}

// The metrics that are read: those of every Go process, and the kubelet's own word of its node.
const (
	startMetric = "process_start_time_seconds"
	cpuMetric   = "process_cpu_seconds_total"
	nameMetric  = "kubelet_node_name"
	nameLabel   = "node"
)

// read takes the process, but for its key, out of what a kubelet answers. An error says what is
// missing, or whose answer it is.
func read(body io.Reader, node string) (*fence.Process, error) {
	// Three lines of some ten thousand.
	var lines bytes.Buffer
	all := bufio.NewReader(io.LimitReader(body, maxAnswer))
	for {
		line, err := all.ReadSlice('\n')
		for _, name := range []string{startMetric, cpuMetric, nameMetric} {
			if bytes.HasPrefix(line, []byte(name)) {
				lines.Write(line)
			}
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull): // the rest of a line begins with none of them
		case errors.Is(err, io.EOF):
			return parse(&lines, node)
		case err != nil:
			return nil, err
		}
	}
}

func parse(lines io.Reader, node string) (*fence.Process, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(lines)
	if err != nil {
		return nil, err
	}
	if !names(families[nameMetric], node) {
		return nil, fmt.Errorf("it is not of node %s's kubelet: %s does not name it", node, nameMetric)
	}
	var p fence.Process
	for name, into := range map[string]*float64{startMetric: &p.Start, cpuMetric: &p.CPU} {
		all := families[name].GetMetric()
		if len(all) != 1 {
			return nil, fmt.Errorf("it has not one %s, but %d", name, len(all))
		}
		*into = all[0].GetUntyped().GetValue() // the lines that tell its type were not read
		if !(*into > 0) || math.IsInf(*into, 0) {
			return nil, fmt.Errorf("%s cannot be %g", name, *into)
		}
	}
	return &p, nil
}

func names(family *dto.MetricFamily, node string) bool {
	for _, m := range family.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == nameLabel && l.GetValue() == node {
				return true
			}
		}
	}
	return false
}

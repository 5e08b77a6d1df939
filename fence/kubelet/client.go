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
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

const (
	// timeout of one question. A kubelet that takes longer is not waited for: calls may wait.
	timeout = 2 * time.Second
	// lifetime of a token, of which the first half is used: who asks in time renews it, so that a
	// call waits for none.
	lifetime = 30 * time.Minute
	// maxAnswer bounds what is read of an answer, of which a large node's has a megabyte, and
	// maxLines what is kept of it: three lines.
	maxAnswer = 32 << 20
	maxLines  = 4 << 10
)

// ErrNoToken is that there is no token to ask with, as where its service account is missing. It
// is the same for all kubelets.
var ErrNoToken = errors.New("no token to ask kubelets with")

// errAnotherKey is that somebody serves at a Node's address, by another key than was asked for.
var errAnotherKey = errors.New("another kubelet serves there than before, or has another key")

// Client asks kubelets. It is safe for concurrent use.
type Client struct {
	api                kubernetes.Interface
	namespace, account string
	token              atomic.Pointer[token] // nil: none yet
}

type token struct {
	text        string
	renew, ends time.Time
}

// NewClient asks with tokens of that service account, which api makes (Renew).
func NewClient(api kubernetes.Interface, namespace, account string) *Client {
	return &Client{api: api, namespace: namespace, account: account}
}

// Renew has a token made, if there is none that is good for a while. An error is ErrNoToken, and
// says why; what there is stays good.
func (c *Client) Renew(ctx context.Context) error {
	if t := c.token.Load(); t != nil && time.Now().Before(t.renew) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	seconds, asked := int64(lifetime/time.Second), time.Now()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := c.api.CoreV1().ServiceAccounts(c.namespace).CreateToken(ctx, c.account, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("%w, of service account %s/%s: %w", ErrNoToken, c.namespace, c.account, err)
	}
	c.token.Store(&token{text: answer.Status.Token, renew: asked.Add(lifetime / 2), ends: asked.Add(lifetime)})
	return nil
}

// An Answer is what a kubelet said of its process.
type Answer struct {
	Process fence.Process
	// Age of the process when it answered, by its own clock.
	Age time.Duration
}

// Ask asks the kubelet of a Node, within two seconds. Who serves by another key than key is told
// nothing; empty: whoever is there is told the token. An error says why nothing is known of its
// process: ErrNoToken, that nobody answers at the Node's address, or how the answer is not that
// kubelet's.
func (c *Client) Ask(ctx context.Context, node *corev1.Node, key string) (*Answer, error) {
	t := c.token.Load()
	if t == nil || time.Now().After(t.ends) {
		return nil, ErrNoToken
	}
	host, err := Address(node)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+t.text)
	var serves string
	response, err := client(func(state tls.ConnectionState) error {
		if serves = keyOf(state); key != "" && serves != key {
			return errAnotherKey
		}
		return nil
	}).Do(request)
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
	answer.Key = serves
	now, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return nil, fmt.Errorf("https://%s/metrics has no time at which it was answered: %w", host, err)
	}
	age := now.Sub(time.UnixMilli(int64(answer.Start * 1000)))
	return &Answer{Process: *answer, Age: age}, nil
}

// client makes one request, once who serves was looked at. Nothing but the key tells who has to
// be there: many kubelets sign their certificates themselves.
func client(look func(tls.ConnectionState) error) *http.Client {
	return &http.Client{
		Transport: &http.Transport{ // no proxy is told the token
			TLSClientConfig:    &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, VerifyConnection: look},
			DisableKeepAlives:  true, // the process that answers is the one that listens now
			DisableCompression: true, // what is read is what was sent
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func keyOf(state tls.ConnectionState) string {
	sum := sha256.Sum256(state.PeerCertificates[0].RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Address is where the Node says that its kubelet answers: host:port, with a single IP address that
// a machine may have in a network, and never a name that somebody would have to be asked for. A
// kubelet may say any: whoever is there is sent one request, and nothing of the answer is shown. An
// error says what is missing.
func Address(node *corev1.Node) (string, error) {
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port < 1 || port > math.MaxUint16 {
		return "", fmt.Errorf("node %s says no port of its kubelet", node.Name)
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range node.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			if a.Type == kind && err == nil && ip.Zone() == "" && !ip.IsUnspecified() && !ip.IsMulticast() && !ip.IsLinkLocalUnicast() {
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
	var lines bytes.Buffer // three, of some ten thousand
	limited := &io.LimitedReader{R: body, N: maxAnswer + 1}
	all := bufio.NewReader(limited)
	for begins := true; ; {
		line, err := all.ReadSlice('\n')
		for _, name := range []string{startMetric, cpuMetric, nameMetric} {
			if begins && err == nil && bytes.HasPrefix(line, []byte(name)) {
				lines.Write(line)
			}
		}
		begins = err == nil
		switch {
		case lines.Len() > maxLines:
			return nil, errors.New("it says far more of its process than a kubelet does")
		case limited.N <= 0:
			return nil, fmt.Errorf("its answer is longer than %d bytes", maxAnswer)
		case errors.Is(err, io.EOF):
			return parse(&lines, node)
		case err != nil && !errors.Is(err, bufio.ErrBufferFull): // the rest of a long line is next
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

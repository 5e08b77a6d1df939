// Package trust makes ways to a platform that believe one certificate, or those that
// named authorities have signed.
//
// It guarantees that no answer is read, and nothing, credentials among it, is sent, over a
// connection whose certificate is not the pinned one or does not come from these authorities.
// It does not look for revoked certificates.
package trust

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
)

// maxCAFile is several times as large as the list of a system.
const maxCAFile = 4 << 20

// TLS is the configuration for the parameters ca_file and fingerprint. With both, both have
// to hold; with neither, the system's authorities count.
func TLS(v contract.Values) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := v["ca_file"]; file != "" {
		pem, err := contract.ReadFile(file, maxCAFile)
		if err != nil {
			return nil, fmt.Errorf("parameter ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("parameter ca_file: %s holds no certificate in PEM", file)
		}
	}
	if text := v["fingerprint"]; text != "" {
		pin, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
		if err != nil || len(pin) != sha256.Size {
			return nil, errors.New("parameter fingerprint: it is no SHA-256 in hexadecimal (64 digits, with or without colons), as openssl x509 -noout -fingerprint -sha256 prints it")
		}
		// The pinned certificate may be signed by nobody: the chain counts only with ca_file.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(s tls.ConnectionState) error { return pinned(s, [sha256.Size]byte(pin), c.RootCAs) }
	}
	return c, nil
}

func pinned(s tls.ConnectionState, pin [sha256.Size]byte, roots *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("it shows no certificate")
	}
	leaf := s.PeerCertificates[0]
	if sum := sha256.Sum256(leaf.Raw); sum != pin {
		return fmt.Errorf("its certificate has the SHA-256 fingerprint %x, and %x is pinned: it was renewed, or somebody else answers", sum, pin)
	}
	if roots == nil {
		return nil
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{DNSName: s.ServerName, Roots: roots, Intermediates: between})
	return err
}

// Transport goes through the environment's proxy, with TLS. A proxy that is itself reached by TLS
// would have to show the pinned certificate: it is refused.
func Transport(v contract.Values) (*http.Transport, error) {
	c, err := TLS(v)
	if err != nil {
		return nil, err
	}
	proxy := httpproxy.FromEnvironment().ProxyFunc()
	through := func(r *http.Request) (*url.URL, error) {
		u, err := proxy(r.URL)
		if u != nil && u.Scheme == "https" && v["fingerprint"] != "" {
			return nil, errors.New("parameter proxy: an https:// proxy cannot be gone through where a fingerprint is pinned; its http:// port carries the same TLS to the platform")
		}
		return u, err
	}
	return &http.Transport{
		Proxy: through, TLSClientConfig: c, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second,
	}, nil
}

// Client uses Transport, gives no answer beyond MaxAnswer, and follows no redirection to another host or out of https: what it
// sends there would be for whoever answers.
func Client(v contract.Values) (*http.Client, error) {
	t, err := Transport(v)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: Bounded(t), CheckRedirect: func(to *http.Request, via []*http.Request) error {
		if from := via[0].URL; to.URL.Host != from.Host || to.URL.Scheme != from.Scheme || len(via) > 5 {
			return fmt.Errorf("it sends on to %s, which is not followed", to.URL.Host)
		}
		return nil
	}}, nil
}

// Endpoint is the address that a parameter gives: https, and a host. Of the parameter ip it is
// https://IP, with the port of ipport.
func Endpoint(v contract.Values, name string) (string, error) {
	text := v[name]
	if name == "ip" {
		if strings.Contains(text, ":") && !strings.HasPrefix(text, "[") {
			text = "[" + text + "]" // an IPv6 address
		}
		if v["ipport"] != "" {
			text += ":" + v["ipport"]
		}
		if strings.ContainsAny(text, "/@ ") {
			return "", errors.New("parameter ip: it is no address and no name of a host; the port goes into ipport")
		}
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.ContainsAny(text, "?#") {
		return "", fmt.Errorf("parameter %s: it is no https://HOST[:PORT] without a user, ? and #", name)
	}
	return strings.TrimSuffix(text, "/"), nil
}

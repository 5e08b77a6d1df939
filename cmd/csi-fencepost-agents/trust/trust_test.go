package trust_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/trust"
)

func served(t *testing.T) (s *httptest.Server, ca, fingerprint string) {
	t.Helper()
	s = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := r.FormValue("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
		}
	}))
	t.Cleanup(s.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return s, ca, fmt.Sprintf("%X", sha256.Sum256(s.Certificate().Raw))
}

func colons(hexadecimal string) string {
	var pairs []string
	for i := 0; i < len(hexadecimal); i += 2 {
		pairs = append(pairs, hexadecimal[i:i+2])
	}
	return strings.Join(pairs, ":")
}

func TestACertificateIsTrustedByItsSignerOrByItsFingerprint(t *testing.T) {
	s, ca, fingerprint := served(t)
	other := filepath.Join(t.TempDir(), "other.pem")
	if err := os.WriteFile(other, []byte(otherCA), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		v    contract.Values
		want string
	}{
		"its signer":                  {contract.Values{"ca_file": ca}, ""},
		"its fingerprint":             {contract.Values{"fingerprint": fingerprint}, ""},
		"with colons":                 {contract.Values{"fingerprint": colons(fingerprint)}, ""},
		"both":                        {contract.Values{"ca_file": ca, "fingerprint": fingerprint}, ""},
		"nothing":                     {contract.Values{}, "certificate"},
		"another fingerprint":         {contract.Values{"fingerprint": strings.Repeat("0", 64)}, "is pinned"},
		"its signer, another pinned":  {contract.Values{"ca_file": ca, "fingerprint": strings.Repeat("0", 64)}, "is pinned"},
		"another signer":              {contract.Values{"ca_file": other}, "certificate"},
		"another signer, it pinned":   {contract.Values{"ca_file": other, "fingerprint": fingerprint}, "certificate"},
		"a file without certificates": {contract.Values{"ca_file": "trust.go"}, "no certificate"},
		"no file":                     {contract.Values{"ca_file": "/nowhere"}, "/nowhere"},
		"half a fingerprint":          {contract.Values{"fingerprint": fingerprint[:40]}, "no SHA-256"},
		"SHA-1":                       {contract.Values{"fingerprint": "sha1"}, "no SHA-256"},
	} {
		client, err := trust.Client(c.v)
		if err == nil {
			_, err = client.Get(s.URL) //nolint:bodyclose // the server ends first
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestNobodyIsSentOnToAnotherHost(t *testing.T) {
	s, _, fingerprint := served(t)
	client, err := trust.Client(contract.Values{"fingerprint": fingerprint})
	if err != nil {
		t.Fatal(err)
	}
	for to, ok := range map[string]bool{"/": true, "https://127.0.0.1:1/": false, "http://" + strings.TrimPrefix(s.URL, "https://") + "/": false} {
		res, err := client.Get(s.URL + "?to=" + to)
		if err == nil {
			res.Body.Close()
		}
		if (err == nil) != ok {
			t.Errorf("to %s: %v", to, err)
		}
	}
}

func TestAProxyBehindTLSIsRefusedUnderAPin(t *testing.T) {
	t.Setenv("NO_PROXY", "")
	for proxy, refused := range map[string]bool{"https://user:proxy-word@127.0.0.1:1": true, "http://user:proxy-word@127.0.0.1:1": false} {
		t.Setenv("HTTPS_PROXY", proxy)
		for pin, refused := range map[string]bool{strings.Repeat("ab", 32): refused, "": false} {
			client, err := trust.Client(contract.Values{"fingerprint": pin})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Get("https://bmc.example.com") //nolint:bodyclose // nobody answers
			if err == nil || strings.Contains(err.Error(), "http:// port") != refused || strings.Contains(err.Error(), "proxy-word") {
				t.Errorf("%s, fingerprint %q: %v", proxy, pin, err)
			}
		}
	}
}

// A proxy without TLS is asked for a tunnel, with the name and the password that the variable has for it, and
// sees neither the request nor the certificate that is trusted: that is the device's.
func TestARequestGoesThroughAProxyThatSeesNothingOfIt(t *testing.T) {
	device, _, fingerprint := served(t)
	var mu sync.Mutex
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, _ := strings.Cut(r.Header.Get("Proxy-Authorization"), " ")
		word, _ := base64.StdEncoding.DecodeString(password)
		mu.Lock()
		asked = append(asked, strings.Join([]string{r.Method, r.Host, name, string(word), r.Header.Get("X-Auth-Token")}, " "))
		mu.Unlock()
		if r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		to, err := net.Dial("tcp", device.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer to.Close()
		w.WriteHeader(http.StatusOK)
		from, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer from.Close()
		go func() { _, _ = io.Copy(to, buffered) }()
		_, _ = io.Copy(from, to)
	}))
	t.Cleanup(proxy.Close)
	t.Setenv("NO_PROXY", "")
	t.Setenv("HTTPS_PROXY", "http://user:proxy-word@"+proxy.Listener.Addr().String())
	for pin, trusted := range map[string]bool{fingerprint: true, strings.Repeat("ab", 32): false} {
		asked = nil
		client, err := trust.Client(contract.Values{"fingerprint": pin})
		if err != nil {
			t.Fatal(err)
		}
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://bmc.example.com/power", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("X-Auth-Token", "device-word")
		res, err := client.Do(q)
		if err == nil {
			res.Body.Close()
		}
		client.CloseIdleConnections()
		if (err == nil) != trusted || err != nil && strings.Contains(err.Error(), "word") {
			t.Errorf("fingerprint %s: %v", pin, err)
		}
		mu.Lock()
		if want := "CONNECT bmc.example.com:443 Basic user:proxy-word "; len(asked) != 1 || asked[0] != want {
			t.Errorf("fingerprint %s: the proxy is asked %q, want %q", pin, asked, want)
		}
		mu.Unlock()
	}
}

func TestOnlyHTTPSIsAnEndpoint(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://api.example.com": true, "https://10.0.0.1:8006/x": true,
		"http://api.example.com": false, "https://user:pass@api.example.com": false, "https://": false, "api.example.com": false, "": false,
	} {
		if _, err := trust.Endpoint(contract.Values{"endpoint": text}, "endpoint"); (err == nil) != ok || err != nil && strings.Contains(err.Error(), "pass@") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for ip, want := range map[string]string{"10.0.0.1": "https://10.0.0.1:8006", "fd00::1": "https://[fd00::1]:8006", "[fd00::1]": "https://[fd00::1]:8006", "a/b": "", "x@y": "", "": "https://:8006"} {
		got, err := trust.Endpoint(contract.Values{"ip": ip, "ipport": "8006"}, "ip")
		if want == "https://:8006" {
			want = ""
		}
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", ip, got, err)
		}
	}
}

const otherCA = `-----BEGIN CERTIFICATE-----
MIIBkDCCATWgAwIBAgIUVSO+n5P1Q/LmyAzWISII9sDly0QwCgYIKoZIzj0EAwIw
HDEaMBgGA1UEAwwRYW5vdGhlciBhdXRob3JpdHkwIBcNMjYxMTI5MDMzNjA0WhgP
MjEyNjExMDUwMzM2MDRaMBwxGjAYBgNVBAMMEWFub3RoZXIgYXV0aG9yaXR5MFkw
EwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAErtFKcivqFHZDo/rh+QRrCHgnRWc+Nphk
EYP9h/n588MJHDC1OxAYouwZgItn/4RDOw1amNjeXhs+pP7D0Xik1KNTMFEwHQYD
VR0OBBYEFAOOkyJjAswgoSr4sEyN5jMfIZp+MB8GA1UdIwQYMBaAFAOOkyJjAswg
oSr4sEyN5jMfIZp+MA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSQAwRgIh
AJmsP7t0jemFq1qQ9r7fIYHyxafxxn1VqF/LXSZcAn5SAiEAxDtBqHiI+piEv3VX
Hoah/n90BEDvak6ue8HHA+Jlq6s=
-----END CERTIFICATE-----
`

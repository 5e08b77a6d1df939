package trust_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/trust"
)

// Whatever address is given: it is refused, or what is asked below it goes by https to that host, with
// that path and nothing else.
func FuzzEndpoint(f *testing.F) {
	f.Add("10.0.0.1", "8006", "https://api.example.com/v3/")
	f.Add("fd00::1", "", "https://user:word@api.example.com")
	f.Add("[fe80::1%25eth0]", "443", "https://api.example.com?x=/#y")
	f.Add("bmc.example.com?a=", "x@y", "HTTPS://api.example.com:/")
	f.Fuzz(func(t *testing.T, ip, port, endpoint string) {
		for name, v := range map[string]contract.Values{"ip": {"ip": ip, "ipport": port}, "endpoint": {"endpoint": endpoint}} {
			base, err := trust.Endpoint(v, name)
			if err != nil {
				continue
			}
			u, err := url.Parse(base + "/redfish/v1?a=b")
			if err != nil {
				continue // nothing is asked
			}
			if u.Scheme != "https" || u.Hostname() == "" || u.User != nil || !strings.HasSuffix(u.Path, "/redfish/v1") || u.RawQuery != "a=b" || u.Fragment != "" {
				t.Errorf("%v is %q, and below it is %#v", v, base, u)
			}
			if of, err := url.Parse(base); err != nil || of.Host != u.Host || name == "ip" && (of.Path != "" || !strings.Contains(ip+":"+port, of.Port())) {
				t.Errorf("%v is %q, of which the host is %q", v, base, of)
			}
		}
	})
}

// Whatever is given as a fingerprint: it is refused, or no other certificate is trusted than the one
// that has it.
func FuzzFingerprint(f *testing.F) {
	sum := sha256.Sum256([]byte("a certificate"))
	f.Add(hex.EncodeToString(sum[:]), []byte("a certificate"))
	f.Add(colons(strings.ToUpper(hex.EncodeToString(sum[:]))), []byte("a certificate"))
	f.Add(strings.Repeat("00", 32), []byte("a certificate"))
	f.Add("", []byte{})
	f.Add(":", []byte{})
	f.Add(hex.EncodeToString(sum[:20]), []byte("a certificate"))
	f.Fuzz(func(t *testing.T, text string, certificate []byte) {
		c, err := trust.TLS(contract.Values{"fingerprint": text})
		if err != nil || text == "" {
			if text == "" && (err != nil || c.InsecureSkipVerify) {
				t.Errorf("without a fingerprint: %v", err)
			}
			return
		}
		sum := sha256.Sum256(certificate)
		is := strings.EqualFold(strings.ReplaceAll(text, ":", ""), hex.EncodeToString(sum[:]))
		other := append(bytes.Clone(certificate), 0)
		for raw, trusted := range map[string]bool{string(certificate): is, string(other): false} {
			err := c.VerifyConnection(tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte(raw)}}})
			if (err == nil) != trusted && (trusted || raw == string(certificate)) {
				t.Errorf("%q: the certificate %q: %v", text, raw, err)
			}
		}
		if c.VerifyConnection(tls.ConnectionState{}) == nil {
			t.Errorf("%q: no certificate is trusted", text)
		}
	})
}

// Whatever is in a file of authorities: it is refused, or the authorities in it are trusted and not
// the system's.
func FuzzCAFile(f *testing.F) {
	f.Add([]byte(otherCA))
	f.Add([]byte("ours\r\n" + strings.ReplaceAll(otherCA, "\n", "\r\n") + otherCA))
	f.Add([]byte(strings.ReplaceAll(otherCA, "CERTIFICATE", "TRUSTED CERTIFICATE")))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Add([]byte{})
	file := filepath.Join(f.TempDir(), "ca.pem")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := trust.TLS(contract.Values{"ca_file": file})
		want := x509.NewCertPool()
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			if one, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" && len(block.Headers) == 0 {
				want.AddCert(one)
			}
		}
		if any := !want.Equal(x509.NewCertPool()); any != (err == nil) {
			t.Errorf("authorities: %t, and %v", any, err)
		}
		if err == nil && (c.RootCAs == nil || !c.RootCAs.Equal(want) || c.InsecureSkipVerify) {
			t.Error("others are trusted than those of the file")
		}
	})
}

func TestAFileOfAuthoritiesWithoutAnEndIsRefused(t *testing.T) {
	long := filepath.Join(t.TempDir(), "long.pem")
	if err := os.WriteFile(long, bytes.Repeat([]byte("\n"), 4<<20+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"/dev/zero": "parameter ca_file: /dev/zero is no regular file", long: "is longer than 4194304 bytes"} {
		if _, err := trust.TLS(contract.Values{"ca_file": file}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}

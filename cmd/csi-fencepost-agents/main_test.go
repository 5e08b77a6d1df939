package main

import (
	"bytes"
	"crypto/x509"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
)

func TestEachAgentHasANameAndSaysWhatItsStatesMean(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range agents() {
		if seen[a.Name] || a.Name == "" || a.Short == "" || !strings.Contains(a.Long, "neither") || !strings.Contains(a.Long, "off is ") {
			t.Errorf("%+v", a)
		}
		seen[a.Name] = true
		var out, errs bytes.Buffer
		p := contract.Program{Name: "csi-fencepost-agents", Agents: agents(), Stdout: &out, Stderr: &errs}
		if code := p.Run(t.Context(), []string{"fence_fencepost_" + a.Name, "-o", "metadata"}); code != 0 || errs.Len() > 0 {
			t.Errorf("%s: exit %d, %s", a.Name, code, &errs)
		}
	}
}

// Our image has no list of certificates: then those count that Mozilla trusts.
func TestWithoutTheSystemsCertificatesMozillasCount(t *testing.T) {
	const child = "TEST_OF_ROOTS"
	if os.Getenv(child) != "" {
		pool, err := x509.SystemCertPool()
		// The pool of a system without certificates is empty.
		if err != nil || pool.Equal(x509.NewCertPool()) {
			t.Fatalf("nobody is trusted: %v", err)
		}
		return
	}
	self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	self.Env = append(os.Environ(), child+"=1", "SSL_CERT_FILE=/nowhere", "SSL_CERT_DIR=/nowhere")
	if out, err := self.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v: %s", err, out)
	}
}

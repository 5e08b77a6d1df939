package run

import (
	"crypto/tls"
	"fmt"
	"sync"

	"k8s.io/klog/v2"

	"github.com/csi-fencepost/csi-fencepost/fence/file"
)

// maxPEM, in bytes, is far more than a chain of certificates has.
const maxPEM = 1 << 20

// A certificate is read again with each connection, since it is rotated while we run. Where
// what is in the files does not go together, as in the middle of a rotation, the last that
// did is served.
type certificate struct {
	certFile, keyFile string

	mu   sync.Mutex
	last *tls.Certificate
	said string // what was last wrong with the files
}

// readCertificate returns an error that names the flag or file.
func readCertificate(certFile, keyFile string) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile}
	var err error
	c.last, err = c.read()
	return c, err
}

func (c *certificate) read() (*tls.Certificate, error) {
	cert, err := file.Read(c.certFile, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file: %w", err)
	}
	key, err := file.Read(c.keyFile, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("--tls-private-key-file: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file %s and --tls-private-key-file %s are no certificate with its key, in PEM: %w", c.certFile, c.keyFile, err)
	}
	return &pair, nil
}

// get is for tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	said := ""
	if pair, err := c.read(); err == nil {
		c.last = pair
	} else if said = err.Error(); said != c.said {
		klog.ErrorS(err, "The HTTP endpoint goes on with the last certificate that was right")
	}
	c.said = said
	return c.last, nil
}

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

const (
	// certificateAge is for how long a certificate holds. It is made anew once a third of it is left.
	certificateAge = 365 * 24 * time.Hour
	// lookEvery is how often the Secret is read again: what somebody has taken out of it is back so soon.
	lookEvery = 10 * time.Second
	// trustedAfter is for how long a new authority is in the configurations before its certificate is
	// served: API servers read them by a watch.
	trustedAfter = 10 * time.Second

	caBundle = "ca.crt"
)

// identity is the certificate by which the API server knows this program. All replicas have the same
// one, from a Secret, which has to be there; whichever finds it empty, or about to end, makes it. Its
// authority goes into the webhook configurations, with that of the certificate before, which other
// replicas may serve yet.
type identity struct {
	client            kubernetes.Interface
	namespace, secret string
	hooks             *hooks
	// host is the name by which the API server calls: SERVICE.NAMESPACE.svc.
	host string

	current atomic.Pointer[tls.Certificate]
	serves  []byte // the PEM of current
	bundle  []byte // the authority of current, and the one before
}

// keep looks again and again, until ctx ends. What fails is tried again; the certificate that is
// served goes on meanwhile.
func (i *identity) keep(ctx context.Context) {
	for ctx.Err() == nil {
		wait := lookEvery
		if err := i.look(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot keep the certificate", "secret", i.secret, "namespace", i.namespace)
			if i.current.Load() == nil {
				wait = time.Second
			}
		}
		select {
		case <-ctx.Done():
		case <-i.hooks.changed:
		case <-time.After(wait):
		}
	}
}

func (i *identity) look(ctx context.Context) error {
	secret, err := i.read(ctx)
	if err != nil {
		return err
	}
	untold := i.hooks.trust(ctx, secret.Data[caBundle])
	serving := i.current.Load()
	// What is served goes on until all know what comes after it, but not for the sake of one that cannot be
	// told until nobody is served any more.
	if bytes.Equal(i.serves, secret.Data[corev1.TLSCertKey]) || untold != nil && serving != nil && time.Until(serving.Leaf.NotAfter) > certificateAge/6 {
		return untold
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return err
	}
	if serving != nil { // which is trusted meanwhile: another replica may have told them only now
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(trustedAfter):
		}
	}
	i.current.Store(&pair)
	i.serves, i.bundle = secret.Data[corev1.TLSCertKey], secret.Data[caBundle]
	klog.FromContext(ctx).Info("Serving with a new certificate", "secret", i.secret, "until", pair.Leaf.NotAfter)
	return untold
}

// read is the Secret, with a certificate that holds for a while yet.
func (i *identity) read(ctx context.Context) (*corev1.Secret, error) {
	secrets := i.client.CoreV1().Secrets(i.namespace)
	secret, err := secrets.Get(ctx, i.secret, metav1.GetOptions{})
	if err != nil || i.holds(secret) {
		return secret, err
	}
	if err := i.renew(secret); err != nil {
		return nil, err
	}
	// Of several replicas one is first. The others find out by the conflict, and read its word.
	return secrets.Update(ctx, secret, metav1.UpdateOptions{})
}

// holds tells whether the certificate is for this host, is of the authority beside it, which stands
// among nothing but certificates, and has a third of its life left.
func (i *identity) holds(secret *corev1.Secret) bool {
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return false
	}
	authorities, err := cert.ParseCertsPEM(secret.Data[caBundle]) // as the API server reads it
	if err != nil || bytes.Count(secret.Data[caBundle], []byte("-----BEGIN ")) != len(authorities) {
		return false
	}
	roots := x509.NewCertPool()
	for _, one := range authorities {
		roots.AddCert(one)
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: i.host, Roots: roots, CurrentTime: time.Now().Add(pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore) / 3)})
	return err == nil
}

// renew puts a new certificate into the Secret. The authority before stays the second one in the bundle.
func (i *identity) renew(secret *corev1.Secret) error {
	chain, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: i.host, MaxAge: certificateAge})
	if err != nil {
		return err
	}
	_, authority := pem.Decode(chain) // the certificate comes first, then that of its authority
	if block, _ := pem.Decode(authority); block == nil {
		return errors.New("a certificate without its authority was made")
	}
	known := secret.Data[caBundle]
	if len(known) == 0 { // somebody has made the Secret anew
		known = i.bundle
	}
	secret.Data = map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key, caBundle: bundled(authority, known)}
	return nil
}

// bundled is an authority, and the first one of the bundle before.
func bundled(authority, known []byte) []byte {
	bundle := bytes.Clone(authority)
	// The API server refuses all of a bundle if it cannot read one, and whoever reads the
	// configurations sees all of it.
	if before, err := cert.ParseCertsPEM(known); err == nil {
		bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: before[0].Raw})...)
	}
	return bundle
}

// certificate is for tls.Config.
func (i *identity) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := i.current.Load(); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("the Secret %s/%s was not read yet", i.namespace, i.secret)
}

// serviceable is an error unless a certificate is served that API servers take at that time. A certificate that
// ended goes on being served, for there is none better, and every call by it fails.
func (i *identity) serviceable(now time.Time) error {
	c, err := i.certificate(nil)
	switch {
	case err != nil:
		return err
	case now.Before(c.Leaf.NotBefore):
		return fmt.Errorf("the certificate of the Secret %s/%s holds from %s on only: set this node's clock right", i.namespace, i.secret, c.Leaf.NotBefore.UTC().Format(time.RFC3339))
	case !now.Before(c.Leaf.NotAfter):
		return fmt.Errorf("the certificate of the Secret %s/%s ended at %s, and was not renewed: the log says why. It is made anew by itself once the Secret can be read and written, and the caBundle of the webhook configurations changed", i.namespace, i.secret, c.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

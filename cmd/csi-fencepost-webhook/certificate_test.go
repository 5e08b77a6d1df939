package main

import (
	"encoding/pem"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

// GenerateSelfSignedCertKey has a certificate begin an hour before it is made.
func TestACertificateIsMadeAnewOnceAThirdOfItsLifeIsLeftAndNoSooner(t *testing.T) {
	const host = "hook.storage.svc"
	for age, holds := range map[time.Duration]bool{
		time.Minute:      false, // it has ended
		70 * time.Minute: false, // a seventh is left
		85 * time.Minute: false, // more than a quarter
		89 * time.Minute: false,
		91 * time.Minute: true,
		95 * time.Minute: true, // less than two fifths
		certificateAge:   true,
	} {
		chain, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: host, MaxAge: age})
		if err != nil {
			t.Fatal(err)
		}
		_, authority := pem.Decode(chain)
		secret := &corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key, caBundle: authority}}
		if got := (&identity{host: host}).holds(secret); got != holds {
			t.Errorf("of a life of %s all but an hour is left: it is kept: %t", age, got)
		}
	}
}

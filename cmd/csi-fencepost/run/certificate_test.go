package run

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pair writes a certificate of that name, and its key, into a folder.
func pair(t *testing.T, folder, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	put(t, certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	put(t, keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	return certFile, keyFile
}

func put(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheCertificateIsServedAsItIsRotated(t *testing.T) {
	folder := t.TempDir()
	certFile, keyFile := pair(t, folder, "first")
	secure, err := readCertificate(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	stop, err := startHTTP(t.Context(), address, http.NotFoundHandler(), secure)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	want := func(name string) {
		t.Helper()
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if state := conn.ConnectionState(); state.PeerCertificates[0].Subject.CommonName != name || state.NegotiatedProtocol != "http/1.1" {
			t.Errorf("%s over %s, want %s", state.PeerCertificates[0].Subject, state.NegotiatedProtocol, name)
		}
	}
	want("first")
	old, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	pair(t, folder, "second")
	want("second")
	put(t, keyFile, old)
	want("second")
	os.Remove(certFile)
	want("second")
	pair(t, folder, "third")
	want("third")
	if _, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	if resp, err := http.Get("http://" + address + "/metrics"); err == nil && resp.StatusCode != http.StatusBadRequest {
		t.Errorf("without TLS: %d", resp.StatusCode)
	}
}

func TestWhatIsNoCertificateIsSaidAtOnce(t *testing.T) {
	folder, other := t.TempDir(), t.TempDir()
	certFile, keyFile := pair(t, folder, "a")
	_, anotherKey := pair(t, other, "b")
	empty := filepath.Join(other, "empty")
	put(t, empty, nil)
	for _, c := range []struct{ cert, key, says string }{
		{"/no/such", keyFile, "--tls-cert-file: open /no/such"},
		{folder, keyFile, "--tls-cert-file: " + folder + " is no regular file"},
		{"/dev/zero", keyFile, "--tls-cert-file: /dev/zero is no regular file"},
		{certFile, "/no/such", "--tls-private-key-file: open /no/such"},
		{certFile, anotherKey, "--tls-cert-file " + certFile + " and --tls-private-key-file " + anotherKey + " are no certificate with its key"},
		{certFile, certFile, "are no certificate with its key"},
		{keyFile, certFile, "are no certificate with its key"},
		{empty, keyFile, "are no certificate with its key"},
	} {
		if _, err := readCertificate(c.cert, c.key); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s, %s: %v, want %s", c.cert, c.key, err, c.says)
		}
	}
}

// Whoever does not read what a closing TLS says must not have the probes wait for him.
func TestAConnectionTooManyEndsAtOnceOverTLSToo(t *testing.T) {
	secure, err := readCertificate(pair(t, t.TempDir(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		open := &connections{moved: map[net.Conn]int64{}}
		dial := func() (ours, theirs net.Conn) {
			client, server := net.Pipe()
			theirs = tls.Server(server, &tls.Config{GetCertificate: secure.get})
			ours = tls.Client(client, &tls.Config{InsecureSkipVerify: true})
			go theirs.(*tls.Conn).Handshake()
			if err := ours.(*tls.Conn).Handshake(); err != nil {
				t.Fatal(err)
			}
			go ours.Read(make([]byte, 1)) // the session's ticket
			synctest.Wait()
			return client, theirs
		}
		first, held := dial()
		open.follow(held, http.StateNew)
		began := time.Now()
		for range maxConnections {
			theirs, _ := net.Pipe()
			open.follow(theirs, http.StateNew)
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("all others waited %s", waited)
		}
		if _, err := held.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("it is open: %v", err)
		}
		first.Close()
	})
}

package controlplane

import (
	"context"
	"fmt"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const tokenSeconds = 24 * 60 * 60

// Kubeconfig writes a kubeconfig file for a user with a client certificate and
// returns its path. The user may do what RBAC says of its name and groups.
func (c *Cluster) Kubeconfig(user string, groups ...string) (string, error) {
	return c.kubeconfigFor(c.server(), user, groups...)
}

// kubeconfigFor is Kubeconfig for a user who reaches the API server elsewhere.
func (c *Cluster) kubeconfigFor(server, user string, groups ...string) (string, error) {
	pair, err := c.authority.client(user, groups...)
	if err != nil {
		return "", err
	}
	return c.writeKubeconfig(server, user, &clientcmdapi.AuthInfo{ClientCertificateData: pair.cert, ClientKeyData: pair.key})
}

// ServiceAccountKubeconfig writes a kubeconfig file with a token of an existing
// service account, valid for a day, and returns its path.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	seconds := int64(tokenSeconds)
	request, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of service account %s/%s: %w", namespace, name, err)
	}
	return c.writeKubeconfig(c.server(), namespace+"-"+name, &clientcmdapi.AuthInfo{Token: request.Status.Token})
}

func (c *Cluster) writeKubeconfig(server, user string, identity *clientcmdapi.AuthInfo) (string, error) {
	const context = "sanity"
	config := clientcmdapi.NewConfig()
	config.Clusters[context] = &clientcmdapi.Cluster{Server: server, TLSServerName: serverName, CertificateAuthorityData: c.authority.certPEM}
	config.AuthInfos[user] = identity
	config.Contexts[context] = &clientcmdapi.Context{Cluster: context, AuthInfo: user}
	config.CurrentContext = context
	path := filepath.Join(c.folder.Path, "kubeconfigs", c.uniqueName(user))
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	return path, nil
}

func (c *Cluster) restConfig(user string, groups ...string) (*rest.Config, error) {
	pair, err := c.authority.client(user, groups...)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: c.server(),
		QPS:  200, Burst: 400, // a scenario's own client shall not wait for itself
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.certPEM, CertData: pair.cert, KeyData: pair.key},
	}, nil
}

func (c *Cluster) server() string { return fmt.Sprintf("https://127.0.0.1:%d", c.apiPort) }

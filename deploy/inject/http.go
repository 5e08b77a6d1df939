package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/csi-fencepost/csi-fencepost/deploy"
)

const (
	tlsVolume = "fencepost-tls"
	tlsFolder = "/etc/csi-fencepost-tls"
)

// narrowHTTP lets fewer see the metrics, as the options ask for it.
func (p *Plan) narrowHTTP(w *Workload, o Options) error {
	if o.TLSSecret == "" && o.MetricsFrom == "" {
		return nil
	}
	if len(p.Sidecar.Ports) == 0 {
		return fmt.Errorf("--tls-secret and --metrics-from are for the port of the metrics, and there is none: choose one with --http-port")
	}
	if o.TLSSecret != "" {
		if err := p.serveTLS(o.TLSSecret); err != nil {
			return err
		}
	}
	switch {
	case o.MetricsFrom == "":
		return nil
	case w.Template.Spec.HostNetwork:
		return fmt.Errorf("--metrics-from: no NetworkPolicy holds for a pod on its node's network: only --tls-secret narrows who sees its metrics")
	case len(w.attachers()) > 1:
		return fmt.Errorf("--metrics-from: %d external-attachers are in the pod, and policies of one pod add up, so that each would open the other's port: write one for both by hand, as deploy/sidecar/networkpolicy.yaml shows", len(w.attachers()))
	case w.Selector == nil || len(w.Selector.MatchLabels)+len(w.Selector.MatchExpressions) == 0:
		return fmt.Errorf("--metrics-from: spec.selector is missing, and without it the policy would be for all pods of the namespace")
	}
	p.say("%s: only pods of namespace %s, and the node's kubelet, reach port %d; the pod's other ports, and its ways out, stay open as they are", p.Sidecar.Name, o.MetricsFrom, p.Sidecar.Ports[0].ContainerPort)
	return p.addNetworkPolicy(w.Selector, p.Sidecar.Ports[0].ContainerPort, o.MetricsFrom)
}

// serveTLS mounts a Secret of type kubernetes.io/tls. The kubelet waits for it and says
// so, while the sidecar would not start without its files.
func (p *Plan) serveTLS(secret string) error {
	c := &p.Sidecar
	volume := tlsVolume + c.Name[len(sidecarName):]
	p.Volumes = append(p.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: tlsFolder, ReadOnly: true})
	c.Args = append(c.Args, "--tls-cert-file="+tlsFolder+"/tls.crt", "--tls-private-key-file="+tlsFolder+"/tls.key", "--http-authorization")
	c.LivenessProbe.HTTPGet.Scheme, c.ReadinessProbe.HTTPGet.Scheme = corev1.URISchemeHTTPS, corev1.URISchemeHTTPS
	p.say("%s: metrics over HTTPS with Secret %s/%s, without which the pod does not start, for those whose token the Kubernetes API lets get /metrics", c.Name, p.Namespace, secret)
	return p.addAuthorization()
}

// addAuthorization adds the rights of --http-authorization where the others are.
func (p *Plan) addAuthorization() error {
	if p.withoutRights {
		p.say("those of --http-authorization are left out too: the chart has them with httpAuthorization: true")
		return nil
	}
	text, err := deploy.Authorization(p.names())
	if err != nil {
		return err
	}
	rights, err := split(text)
	if p.kubeconfig != "" {
		p.Elsewhere = append(p.Elsewhere, rights...)
		p.say("the tokens are those of the cluster of %s", p.kubeconfig)
	} else {
		p.Documents = append(p.Documents, rights...)
	}
	return err
}

// addNetworkPolicy adds deploy/sidecar/networkpolicy.yaml for this port of these pods.
func (p *Plan) addNetworkPolicy(pods *metav1.LabelSelector, port int32, from string) error {
	text, err := deploy.Files.ReadFile("sidecar/networkpolicy.yaml")
	if err != nil {
		return err
	}
	var policy networkingv1.NetworkPolicy
	if err := yaml.UnmarshalStrict(text, &policy); err != nil {
		return fmt.Errorf("deploy/sidecar/networkpolicy.yaml: %w", err)
	}
	policy.Name, policy.Namespace, policy.Spec.PodSelector = configMapName(p.Driver), p.Namespace, *pods
	metrics, others := &policy.Spec.Ingress[0], policy.Spec.Ingress[1].Ports // below it, above it, of UDP
	metrics.From[0].NamespaceSelector.MatchLabels[corev1.LabelMetadataName] = from
	metrics.Ports[0].Port = new(intstr.FromInt32(port))
	others[0].EndPort, others[1].Port = new(port-1), new(intstr.FromInt32(port+1))
	policy.Spec.Ingress[1].Ports = slices.DeleteFunc(others, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.IntVal > *p.EndPort })
	if text, err = yaml.Marshal(policy); err != nil {
		return err
	}
	d, err := document("# Only that namespace, and kubelets, reach the port of csi-fencepost's metrics. What it\n# does not do, and why: deploy/sidecar/networkpolicy.yaml.\n" + string(text))
	p.Documents = append(p.Documents, d)
	return err
}

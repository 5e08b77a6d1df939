package inject

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// configKey is the file in the ConfigMap.
const configKey = "config.yaml"

// configMapName is one for each driver: many of them share kube-system.
func configMapName(driver string) string { return "csi-fencepost-" + driver }

// sample is the configuration of deploy/sidecar/config.yaml.
func sample() (string, error) {
	text, err := deploy.Files.ReadFile("sidecar/config.yaml")
	if err != nil {
		return "", err
	}
	var m corev1.ConfigMap
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		return "", fmt.Errorf("deploy/sidecar/config.yaml: %w", err)
	}
	return m.Data[configKey], nil
}

// configuration is the sample with the profile's facts in it.
func configuration(mode config.Mode, revokes bool, failover Failover) (string, error) {
	text, err := sample()
	if err != nil {
		return "", err
	}
	for _, change := range []struct {
		when     bool
		old, new string
	}{
		{true, "mode: Observe\n", "mode: " + string(mode) + "\n"},
		{revokes, "unpublishRevokesAccess: false\n", "unpublishRevokesAccess: true\n"},
		{failover == InPod, "# failover: {enabled: true}\n", "failover: {enabled: true}\n"},
		{failover == Apart, "# fencing: {apart: true}\n", "fencing: {apart: true}\n"},
	} {
		if strings.Count(text, change.old) != 1 {
			return "", fmt.Errorf("deploy/sidecar/config.yaml has no line %q", change.old)
		}
		if change.when {
			text = strings.Replace(text, change.old, change.new, 1)
		}
	}
	return text, nil
}

// configure chooses the configuration and what follows from it.
func (p *Plan) configure(o Options) error {
	text := string(o.Config)
	if o.Config == nil {
		p.Mode = o.Mode
		if p.Mode == "" {
			p.Mode = config.Observe
		}
		if o.Mode == "" && !p.withoutRights {
			p.say("mode Observe, to begin with: it refuses nothing, and says what Enforce would have refused; --mode Enforce chooses that")
		}
		var err error
		if text, err = configuration(p.Mode, p.Profile.RevokesAccess.Known == "yes", o.Failover); err != nil {
			return err
		}
	}
	c, err := config.Parse([]byte(text))
	if err != nil {
		return fmt.Errorf("the configuration is wrong: %w", err)
	}
	p.Mode, p.Failover, p.Apart = c.Mode, c.Failover.Enabled, o.Failover == Apart || o.apartBefore && c.Fencing.Apart
	switch {
	case o.Failover != NoFailover && p.Mode != config.Enforce:
		return errors.New("--failover needs --mode Enforce: what moves pods has to guard their volumes")
	case p.Apart && !c.Fencing.Apart:
		return errors.New("--failover: the configuration does not say fencing.apart: true, so that this driver's sidecar would not ask csi-fencepost failover whether a machine is off")
	case c.Fencing.Apart && !p.Apart:
		p.say("the configuration says fencing.apart: true: csi-fencepost failover has to run (--failover adds it); what it does not answer is refused")
	}
	if err := c.CheckNamespace(); err != nil {
		return fmt.Errorf("the configuration is wrong: %w", err)
	}
	if c.Fencing.Namespace != "csi-fencepost" {
		p.say("the configuration has fencing.namespace %s: the rights below are for csi-fencepost, rename it there", c.Fencing.Namespace)
	}
	p.credentials = credentialFiles(c.Fencing.Levels)
	if p.withoutRights {
		return p.leaveOut()
	}
	if p.Mode == config.Enforce {
		p.say("mode Enforce: %s", unblocks(c))
	}
	return p.addDocuments(text)
}

// unblocks says what lets the volumes of a node go that died without a word, and
// what waits for a person.
func unblocks(c *config.Configuration) string {
	var proofs []string
	for _, source := range []struct {
		on   bool
		text string
	}{
		{len(c.Fencing.Levels) > 0, "a reading of the fence agents that the machine is off"},
		{c.Fencing.Apart, "a reading of the fence agents of csi-fencepost failover that the machine is off"},
		{c.Driver.UnpublishRevokesAccess, "the driver's unpublish, which cuts the node off"},
		{c.Evidence.CloudShutdownTaint, "the cloud's shutdown taint"},
		{c.Evidence.NodeDeleted, "the deletion of the Node"},
		{c.Evidence.FenceAgentsRemediation || c.Evidence.SelfNodeRemediation, "a remediation of medik8s"},
	} {
		if source.on {
			proofs = append(proofs, source.text)
		}
	}
	var words []string
	if c.Evidence.OutOfServiceTaint {
		words = append(words, "the out-of-service taint")
	}
	if c.Evidence.OperatorConfirmation {
		words = append(words, "csi-fencepost fence confirm NODE")
	}
	said := "nobody's word counts"
	if len(words) > 0 {
		said = "a person's word: " + strings.Join(words, " or ")
	}
	if len(proofs) == 0 {
		return "the volumes of a node that dies, or vanishes, wait for " + said + ". Nothing in this configuration proves by itself that a node is off: fence agents do (fencing.levels, docs/use/evidence.md)"
	}
	return "the volumes of a node that dies, or vanishes, move with " + strings.Join(proofs, ", or ") + "; without, they wait for " + said
}

// leaveOut adds neither rights nor configuration.
func (p *Plan) leaveOut() error {
	if p.kubeconfig != "" {
		return fmt.Errorf("--without-rights: the attacher has a --kubeconfig, and a release of the chart of csi-fencepost gives no rights in that one's cluster: take the flag off, and --rights FILE has them")
	}
	p.say("rights and configuration are left out: a release of the chart of csi-fencepost has to have driver %s with namespace %s and serviceAccounts [%s], or the pod waits for ConfigMap %s and its sidecar has no rights", p.Driver, p.Namespace, p.ServiceAccount, configMapName(p.Driver))
	return nil
}

// names are those in the rights.
func (p *Plan) names() deploy.Names {
	return deploy.Names{Namespace: cmp.Or(p.leaseNamespace, p.Namespace), ServiceAccount: p.ServiceAccount, Driver: p.Driver}
}

// addDocuments adds the rights for mode and failover, and the ConfigMap.
func (p *Plan) addDocuments(configText string) error {
	names := p.names()
	render, which := deploy.Observe, "Observe (reads, and writes Events)"
	switch {
	case p.Failover:
		render, which = deploy.Failover, "Enforce with failover (writes ledgers and records, taints nodes, deletes pods)"
	case p.Mode == config.Enforce:
		render, which = deploy.Enforce, "Enforce (writes ledgers and records)"
	}
	text, err := render(names)
	if err != nil {
		return err
	}
	p.say("rights of mode %s for service account %s/%s", which, names.Namespace, p.ServiceAccount)
	rights, err := split(text)
	if err != nil {
		return err
	}
	if p.Apart {
		apart, err := p.apart()
		if err != nil {
			return err
		}
		rights = append(rights, apart...)
	}
	if p.Documents = rights; p.kubeconfig != "" {
		p.Documents, p.Elsewhere = nil, rights
		p.say("in the cluster of %s the user may have another name than this service account: put it into the bindings", p.kubeconfig)
	}
	m, err := configMap(p.Namespace, p.Driver, configText)
	if err != nil {
		return err
	}
	p.Documents = append(p.Documents, m)
	return nil
}

// apart is csi-fencepost failover, as one driver's run has it like another's: only the image may
// differ. What it is configured with, and its devices' credentials, are of nobody's run.
func (p *Plan) apart() ([]Document, error) {
	text, err := deploy.ApartDeployment(p.names(), p.Sidecar.Image)
	if err != nil {
		return nil, err
	}
	p.say("pods are moved by csi-fencepost failover, Deployment %s/%s, one for all drivers, with an account of its own: its pods wait for its ConfigMap of that name, with its fence agents, which is yours to make (docs/use/failover.md#a-deployment-of-its-own)", deploy.ApartNamespace, deploy.ApartAccount)
	return split(text)
}

// split takes a stream of manifests apart.
func split(stream []byte) (documents []Document, err error) {
	for _, text := range strings.Split(string(stream), "---\n") {
		d, err := document(text)
		if err != nil {
			return nil, err
		}
		documents = append(documents, d)
	}
	return documents, nil
}

func document(text string) (Document, error) {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
	}
	err := yaml.Unmarshal([]byte(text), &head)
	return Document{head.APIVersion, head.Kind, head.Metadata.Namespace, head.Metadata.Name, text}, err
}

// key tells objects apart.
func (d Document) key() string {
	group, _, _ := strings.Cut(d.APIVersion, "/")
	return strings.Join([]string{group, d.Kind, d.Namespace, d.Name}, "|")
}

func configMap(namespace, driver, text string) (Document, error) {
	var data bytes.Buffer
	encoder := yamlv3.NewEncoder(&data)
	encoder.SetIndent(2)
	style := yamlv3.LiteralStyle
	if strings.Contains(text, "\r") { // a literal would lose it
		style = yamlv3.DoubleQuotedStyle
	}
	scalar := func(s string, style yamlv3.Style) *yamlv3.Node {
		return &yamlv3.Node{Kind: yamlv3.ScalarNode, Tag: "!!str", Value: s, Style: style}
	}
	m := func(content ...*yamlv3.Node) *yamlv3.Node {
		return &yamlv3.Node{Kind: yamlv3.MappingNode, Content: content}
	}
	if err := encoder.Encode(m(scalar("data", 0), m(scalar(configKey, 0), scalar(text, style)))); err != nil {
		return Document{}, err
	}
	return document("# The configuration of csi-fencepost. What is not named has its default; an\n# unknown field is an error.\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " +
		configMapName(driver) + "\n  namespace: " + namespace + "\n" + data.String())
}

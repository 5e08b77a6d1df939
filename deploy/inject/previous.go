package inject

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/deploy/inject/splice"
)

// or fills in what is left open. A configuration holds together with mode and
// failover: these are taken over only where none of the three is chosen.
func (o Options) or(before Options) Options {
	if o.Image == "" {
		o.Image = before.Image
	}
	if o.Native == nil {
		o.Native = before.Native
	}
	if o.WithoutRights == nil {
		o.WithoutRights = before.WithoutRights
	}
	if o.SELinuxType == "" {
		o.SELinuxType = before.SELinuxType
	}
	switch {
	case o.AgentsSecrets != nil:
	case o.Failover == Apart && before.Failover != Apart:
		o.agentsLeft = before.AgentsSecrets // the credentials of devices are not the driver's pod's any more
	default:
		o.AgentsSecrets = before.AgentsSecrets
	}
	if o.AgentDirs == "" {
		o.AgentDirs = before.AgentDirs
	}
	if o.TLSSecret == "" {
		o.TLSSecret = before.TLSSecret
	}
	if o.MetricsFrom == "" {
		o.MetricsFrom = before.MetricsFrom
	}
	o.apartBefore, o.portBefore = before.Failover == Apart, before.HTTPPort
	if o.Mode == "" && o.Config == nil && o.Failover == NoFailover {
		o.Mode, o.Failover, o.Config = before.Mode, before.Failover, before.Config
	}
	return o
}

// attacherKey tells attachers apart.
func attacherKey(m *manifest, container string) string { return m.key() + "|" + container }

// previous are the injections that stand in the files, by their attachers' keys.
func previous(files []File) (map[string]earlier, error) {
	_, found, err := readFiles(files)
	if err != nil {
		return nil, err
	}
	before := map[string]earlier{}
	for i := range found {
		m := &found[i]
		if !isWorkload(m.APIVersion, m.Kind) || field(field(m.node, "metadata"), "annotations") == nil {
			continue
		}
		o, err := m.decode()
		if err != nil {
			return nil, err
		}
		all, err := records(child(o, "metadata", "annotations"))
		if err != nil {
			return nil, errors.New(m.where + ": " + err.Error())
		}
		if len(all) == 0 {
			continue
		}
		w, err := FromObject(o)
		if err != nil {
			return nil, errors.New(m.where + ": " + err.Error())
		}
		for container, r := range all {
			e := earlier{put: r.Sidecar, volumes: w.Template.Spec.Volumes, Options: Options{
				Drivers: []string{r.Driver}, Image: r.Image, Native: &r.Native, SELinuxType: r.SELinuxType, Mode: r.Mode, Failover: r.failover(), Config: configOf(found, r.Driver, r.Namespace),
				AgentsSecrets: r.AgentsSecrets, AgentDirs: r.AgentDirs, TLSSecret: r.TLSSecret, MetricsFrom: r.MetricsFrom, WithoutRights: &r.WithoutRights,
			}}
			if r.Sidecar != nil && len(r.Sidecar.Ports) > 0 {
				e.HTTPPort = r.Sidecar.Ports[0].ContainerPort
			}
			for _, c := range containersOf(&w.Template.Spec) {
				if c.Name == r.Container {
					e.now = c
				}
			}
			before[attacherKey(m, container)] = e
		}
	}
	return before, nil
}

// configOf finds the configuration that was injected, as a person may have
// changed it since.
func configOf(found []manifest, driver, namespace string) []byte {
	for _, m := range found {
		if m.Kind == "ConfigMap" && m.Name == configMapName(driver) && m.Namespace == namespace {
			if text := field(field(m.node, "data"), configKey); text != nil && text.Value != "" {
				return []byte(text.Value)
			}
		}
	}
	return nil
}

// likeBefore takes over what an earlier run has configured in documents that it kept apart: the
// workload is as its vendor has it then, and tells nothing, or its record is without them.
func (r *Result) likeBefore(all []*candidate, o Options) error {
	_, found, err := readFiles(o.Before)
	if err != nil {
		return err
	}
	for _, c := range all {
		text := configOf(found, c.driver, cmp.Or(c.w.ObjectMeta.Namespace, o.Namespace))
		if text == nil || c.before.Config != nil {
			continue
		}
		c.before.Config = text
		if slices.ContainsFunc(found, func(m manifest) bool {
			return m.Kind == "Deployment" && m.Namespace == deploy.ApartNamespace && m.Name == deploy.ApartAccount
		}) {
			c.before.Failover = Apart
		}
		if o.Mode == "" && o.Config == nil && o.Failover == NoFailover {
			r.say(c.w.Where, "mode and configuration as %s has them, which this run replaces; --mode or --config chooses others", o.Before[0].Name)
		}
	}
	return nil
}

// losesNone is an error where documents of an earlier run configure what these plans do not.
func losesNone(plans []*Plan, before []File) error {
	_, found, err := readFiles(before)
	if err != nil {
		return err
	}
	have := map[string]bool{}
	for _, p := range plans {
		for _, d := range p.Documents {
			have[d.key()] = true
		}
	}
	for _, m := range found {
		if m.Kind == "ConfigMap" && strings.HasPrefix(m.Name, configMapName("")) && !have[m.key()] {
			return fmt.Errorf("%s: it has ConfigMap %s/%s, of what is not guarded here, and would be replaced: name another folder for this driver, or take the file away if that one is gone", m.where, m.Namespace, m.Name)
		}
	}
	return nil
}

// alone are documents as a file of their own, marked as a whole.
func alone(texts []string) ([]byte, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	empty, err := splice.Parse(nil)
	if err != nil {
		return nil, err
	}
	return empty.Apply(splice.Change{Append: texts})
}

func asNothing(err error, nothing **NothingError) bool { return err != nil && errors.As(err, nothing) }

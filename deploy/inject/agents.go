package inject

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/fence/agent/program"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/file"
)

// AgentsFolder is where the first Secret with credentials of fence agents is
// mounted, unless another folder is named.
const AgentsFolder = "/etc/csi-fencepost-agents"

// agentsVolume begins the names of the Secrets' volumes.
const agentsVolume = "fencepost-agents"

// addAgents mounts the Secrets with the credentials of fence agents. They are
// optional to the kubelet: a Secret that is not there yet must not keep the
// driver's pod from starting.
func (p *Plan) addAgents(o Options) error {
	c := &p.Sidecar
	for i, secret := range o.AgentsSecrets {
		if secret == "" {
			continue // takes away what was there before
		}
		name, folder, _ := strings.Cut(secret, "=")
		if folder == "" {
			folder = AgentsFolder
		}
		taken := func(m corev1.VolumeMount) bool {
			return path.Clean(m.MountPath) == folder || isUnder(folder, m.MountPath) || isUnder(path.Clean(m.MountPath), folder)
		}
		switch at := slices.IndexFunc(c.VolumeMounts, taken); {
		case name == "":
			return fmt.Errorf("--agents-secret %s: it names no Secret: NAME, or NAME=FOLDER", secret)
		case !path.IsAbs(folder) || path.Clean(folder) != folder || folder == "/":
			return fmt.Errorf("--agents-secret %s: %s is not the absolute path of a folder", secret, folder)
		case at >= 0:
			return fmt.Errorf("--agents-secret %s: %s is at %s already: give each Secret a folder of its own, NAME=FOLDER", secret, c.VolumeMounts[at].Name, c.VolumeMounts[at].MountPath)
		}
		volume := fmt.Sprintf("%s%d%s", agentsVolume, i+1, strings.TrimPrefix(c.Name, sidecarName))
		optional := true
		p.Volumes = append(p.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: name, Optional: &optional},
		}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: folder, ReadOnly: true})
		p.say("%s: Secret %s/%s at %s, for fence agents; the pod starts without it too", c.Name, p.Namespace, name, folder)
	}
	for _, secret := range o.agentsLeft {
		name, _, _ := strings.Cut(secret, "=")
		p.say("%s: Secret %s/%s is not mounted any more: csi-fencepost failover asks the fence agents, and mounts their credentials itself; --agents-secret %s keeps it here", c.Name, p.Namespace, name, secret)
	}
	if o.AgentDirs != "" {
		for folder := range strings.SplitSeq(o.AgentDirs, ",") {
			if err := program.CheckFolder(folder); err != nil {
				return fmt.Errorf("--agent-dirs: %w", err)
			}
		}
		setArg(c, "agent-dirs", o.AgentDirs)
		p.say("%s: --agent-dirs=%s: the image has to have fence agents there", c.Name, o.AgentDirs)
	}
	return nil
}

// credentialFiles are those that the fence agents of a configuration read.
func credentialFiles(levels []config.Level) (files []string) {
	for _, level := range levels {
		for _, a := range level.Agents {
			if a.IPMI != nil {
				files = append(files, a.IPMI.UsernameFile, a.IPMI.PasswordFile)
			}
			if a.Exec != nil {
				files = slices.AppendSeq(files, maps.Values(a.Exec.ParameterFiles))
			}
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// holds tells whether a volume of the sidecar may have a file. Of a file for each node one
// may be enough: a Secret for each may be mounted where the paths begin to differ.
func (p *Plan) holds(name string) bool {
	if _, mounted := mountOf(&p.Sidecar, path.Clean(name)); mounted {
		return true
	}
	same, _, perNode := strings.Cut(name, file.Node)
	return perNode && slices.ContainsFunc(p.Sidecar.VolumeMounts, func(m corev1.VolumeMount) bool {
		return strings.HasPrefix(m.MountPath, same)
	})
}

// lookForCredentials says which files of the configuration no volume holds.
func (p *Plan) lookForCredentials() {
	folders := map[string][]string{}
	for _, name := range p.credentials {
		if !p.holds(name) {
			same, _, _ := strings.Cut(name, file.Node)
			folders[path.Dir(same)] = append(folders[path.Dir(same)], name)
		}
	}
	var missing []Finding
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		missing = append(missing, Finding{p.Where, fmt.Sprintf("the configuration names %s, which is in no volume of %s: mount the Secret that has it, --agents-secret NAME=%s", strings.Join(folders[folder], ", "), p.Sidecar.Name, folder)})
	}
	p.Findings = append(missing, p.Findings...)
}

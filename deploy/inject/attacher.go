package inject

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/deploy/profile"
)

// defaultSocket is external-attacher's --csi-address when it is given none.
const defaultSocket = "/run/csi/socket"

// isAttacher tells whether a container runs external-attacher: by its image, by
// its command, or, where an image was renamed, by its name and its flags.
func isAttacher(c *corev1.Container) bool {
	if isCombined(c) {
		return mayAttach(c)
	}
	image := profile.ImageName(c.Image)
	if strings.HasSuffix(image, "csi-attacher") || strings.Contains(image, "external-attacher") {
		return true
	}
	if len(c.Command) > 0 && strings.HasSuffix(path.Base(c.Command[0]), "csi-attacher") {
		return true
	}
	l, err := readCommandLine(c)
	if err != nil {
		return false
	}
	return l.get("reconcile-sync") != nil || strings.HasSuffix(c.Name, "attacher") && l.get("csi-address") != nil
}

// An attacher is what was read of an external-attacher container.
type attacher struct {
	*corev1.Container
	index    int
	line     *commandLine
	socket   string // path of the driver's socket in this container
	mount    corev1.VolumeMount
	combined []string // what csi-sidecars runs; empty: it is external-attacher alone
}

func readAttacher(c *corev1.Container, index int) (*attacher, error) {
	line, err := readCommandLine(c)
	if err != nil {
		return nil, err
	}
	a := &attacher{Container: c, index: index, line: line}
	if isCombined(c) {
		if err := a.readCombined(); err != nil {
			return nil, err
		}
	}
	address, err := line.expanded("csi-address", defaultSocket)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", c.Name, err)
	}
	a.socket = path.Clean(strings.TrimPrefix(strings.TrimPrefix(address, "unix:"), "//"))
	if !path.IsAbs(a.socket) {
		return nil, fmt.Errorf("container %s: --csi-address=%s is no absolute path of a socket", c.Name, address)
	}
	mount, ok := mountOf(c, a.socket)
	if !ok {
		return nil, fmt.Errorf("container %s: the driver's socket %s is in none of its volumes (%s): mount the volume of the driver's socket, or correct --csi-address", c.Name, a.socket, mountPaths(c))
	}
	a.mount = mount
	return a, nil
}

// mountOf finds the mount in which a path lies, the innermost one.
func mountOf(c *corev1.Container, file string) (found corev1.VolumeMount, ok bool) {
	for _, m := range c.VolumeMounts {
		if isUnder(file, m.MountPath) && (!ok || len(path.Clean(m.MountPath)) > len(path.Clean(found.MountPath))) {
			found, ok = m, true
		}
	}
	return found, ok
}

func isUnder(file, folder string) bool {
	folder = path.Clean(folder)
	return folder == "/" || strings.HasPrefix(file, folder+"/")
}

func mountPaths(c *corev1.Container) string {
	var paths []string
	for _, m := range c.VolumeMounts {
		paths = append(paths, m.MountPath)
	}
	if len(paths) == 0 {
		return "it mounts none"
	}
	return "it mounts " + strings.Join(paths, ", ")
}

// onlyForSocket tells whether the attacher needs the driver's mount for nothing
// but its --csi-address.
func (a *attacher) onlyForSocket() bool {
	folder := path.Clean(a.mount.MountPath)
	inFolder := regexp.MustCompile(`(^|[^\w.-])` + regexp.QuoteMeta(folder) + `(/|$|[^\w.-])`)
	address := a.line.get("csi-address")
	for _, g := range a.line.flags {
		if value, err := expand(g.value, a.line.env); g.name != "csi-address" && (err != nil || inFolder.MatchString(value)) {
			return false
		}
	}
	for _, e := range a.Env {
		ofAddress := address != nil && strings.Contains(address.value, "$("+e.Name+")")
		if !ofAddress && inFolder.MatchString(e.Value) {
			return false
		}
	}
	for _, probe := range []*corev1.Probe{a.LivenessProbe, a.ReadinessProbe, a.StartupProbe} {
		if probe != nil && probe.Exec != nil {
			return false
		}
	}
	for _, m := range a.VolumeMounts {
		if m.MountPath != a.mount.MountPath && isUnder(path.Clean(m.MountPath), folder) {
			return false
		}
	}
	return a.Lifecycle == nil && a.mount.SubPathExpr == ""
}

// A limit of the attacher and what a failover needs.
type limit struct {
	flag, byDefault, want string
	less                  func(value string) (bool, error)
	why                   string
}

// limits have the values that deploy/sidecar/patch.yaml has; a test holds them
// against each other.
var limits = []limit{
	{"timeout", "15s", "60s", func(v string) (bool, error) {
		d, err := time.ParseDuration(v)
		return d < time.Minute, err
	}, "one call unpublishes the old node and publishes the new one"},
	{"worker-threads", "10", "100", lessThan(100), "a dead node's volumes come all at once"},
	{"kube-api-qps", "5", "100", lessThan(100), "a failover of many volumes is bound by it"},
	{"kube-api-burst", "10", "200", lessThan(200), "a failover of many volumes is bound by it"},
}

func lessThan(want float64) func(string) (bool, error) {
	return func(v string) (bool, error) {
		n, err := strconv.ParseFloat(v, 64)
		return n < want, err
	}
}

var version = regexp.MustCompile(`^v?(\d+)\.(\d+)`)

// hasAPIFlags tells whether the attacher has --kube-api-qps and --kube-api-burst, as
// external-attacher does since its 3.2 (its CHANGELOG-3.2.md, #286); it ends at a flag that it does
// not know. A tag that is no version is taken for a newer one. csi-sidecars counts anew.
func (a *attacher) hasAPIFlags() bool {
	if len(a.combined) > 0 {
		return true
	}
	image, _, _ := strings.Cut(a.Image, "@")
	_, tag, _ := strings.Cut(path.Base(image), ":")
	m := version.FindStringSubmatch(tag)
	if m == nil {
		return true
	}
	major, majorErr := strconv.Atoi(m[1])
	minor, minorErr := strconv.Atoi(m[2])
	return majorErr != nil || minorErr != nil || major > 3 || major == 3 && minor >= 2
}

// raise puts the limits up where they are lower, and says so.
func (a *attacher) raise(say func(string, ...any)) {
	for _, l := range limits {
		if strings.HasPrefix(l.flag, "kube-api-") && a.line.get(l.flag) == nil && !a.hasAPIFlags() {
			say("%s: --%s is left alone: %s does not know it, external-attacher has it since 3.2", a.Name, l.flag, a.Image)
			continue
		}
		flag := a.flagOf(l.flag)
		value, err := a.line.expanded(flag, l.byDefault)
		if err != nil {
			say("%s: --%s cannot be read and is left alone (%v); at least %s is right, for %s", a.Name, flag, err, l.want, l.why)
			continue
		}
		less, err := l.less(value)
		switch {
		case err != nil:
			say("%s: --%s=%s cannot be read and is left alone; at least %s is right, for %s", a.Name, flag, value, l.want, l.why)
		case less:
			say("%s: --%s from %s to %s: %s", a.Name, flag, value, l.want, l.why)
			a.line.set(flag, l.want)
		}
	}
}

// flags of the attacher that have to hold, as they are now.
func (a *attacher) flags() (all []string) {
	for _, l := range slices.Insert(slices.Clone(limits), 0, limit{flag: "csi-address", byDefault: defaultSocket}) {
		flag := a.flagOf(l.flag)
		if strings.HasPrefix(l.flag, "kube-api-") && a.line.get(flag) == nil && !a.hasAPIFlags() {
			continue
		}
		if value, err := a.line.expanded(flag, l.byDefault); err == nil {
			all = append(all, "--"+flag+"="+value)
		}
	}
	return all
}

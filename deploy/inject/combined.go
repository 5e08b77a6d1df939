package inject

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/deploy/profile"
)

// csi-sidecars (KEP-4958) is external-attacher and the other CSI sidecars in one program. They
// share one --csi-address; flags of one of them begin with its name. Whatever is pointed at our
// socket is all of them: the guard judges the two calls of external-attacher, and hands on every
// other as it is.

// isCombined tells whether a container runs csi-sidecars.
func isCombined(c *corev1.Container) bool {
	return strings.HasSuffix(profile.ImageName(c.Image), "csi-sidecars") || len(c.Command) > 0 && path.Base(c.Command[0]) == "csi-sidecars"
}

// mayAttach tells whether csi-sidecars runs external-attacher; also where that cannot be told.
func mayAttach(c *corev1.Container) bool {
	line, err := readCommandLine(c)
	if err != nil {
		return true
	}
	all, err := controllersOf(c, line)
	return err != nil || slices.Contains(all, "attacher")
}

// controllersOf csi-sidecars are those that it runs, "*" among them for all that are not named.
func controllersOf(c *corev1.Container, line *commandLine) (all []string, err error) {
	value, err := line.expanded("controllers", "")
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", c.Name, err)
	}
	if value == "" {
		return nil, fmt.Errorf("container %s runs csi-sidecars without --controllers, so that it cannot be told whether external-attacher is in it: write --controllers=attacher,provisioner (those that it is to run) into its arguments", c.Name)
	}
	all = strings.Split(value, ",")
	if slices.Contains(all, "*") && !slices.Contains(all, "-attacher") && !slices.Contains(all, "attacher") {
		all = append(all, "attacher")
	}
	return all, nil
}

// readCombined fills in what differs where external-attacher is in csi-sidecars.
func (a *attacher) readCombined() (err error) {
	if a.line.get("attacher-csi-address") != nil {
		return fmt.Errorf("container %s: --attacher-csi-address would lead its external-attacher past --csi-address, which is the flag that csi-fencepost changes: give all of csi-sidecars one --csi-address", a.Name)
	}
	a.combined, err = controllersOf(a.Container, a.line)
	return err
}

// flagOf is what a flag of external-attacher is called in this program.
func (a *attacher) flagOf(name string) string {
	if len(a.combined) > 0 && name != "csi-address" && !strings.HasPrefix(name, "kube-api-") {
		return "attacher-" + name
	}
	return name
}

// program says what the container runs.
func (a *attacher) program() string {
	if len(a.combined) == 0 {
		return "is external-attacher"
	}
	others := slices.DeleteFunc(slices.Clone(a.combined), func(name string) bool { return name == "attacher" })
	if len(others) == 0 {
		return "is csi-sidecars with external-attacher"
	}
	return "is csi-sidecars with external-attacher; what else it runs (" + strings.Join(others, ", ") + ") has the same --csi-address, so that its calls pass through csi-fencepost too, unchanged"
}

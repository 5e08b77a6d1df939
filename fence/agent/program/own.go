package program

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// ownPrefix is how the names of csi-fencepost-agents' agents begin.
const ownPrefix = "fence_fencepost_"

// validateOwn finds what our own agents must not be told, or have to be. seen has the keys that
// are given, by their plain form.
func (o Options) validateOwn(seen map[string]string) (errs []error) {
	if !strings.HasPrefix(filepath.Base(o.Agent), ownPrefix) {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(seen)) {
		if strings.ReplaceAll(key, "_", "") == "notfoundisgone" {
			errs = append(errs, fmt.Errorf("parameter %q is not allowed: a machine that is not found may run, where a right, a region or the right form of its name is missing; "+
				"see whether it is gone, and say so with csi-fencepost fence confirm", seen[key]))
		}
	}
	return errs
}

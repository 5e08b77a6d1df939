package program

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// ownPrefix is how the names of csi-fencepost-agents' agents begin.
const ownPrefix = "fence_fencepost_"

// uuidAgents are those whose platforms tell a machine's system UUID.
var uuidAgents = []string{ownPrefix + "redfish", ownPrefix + "proxmox", ownPrefix + "azure", ownPrefix + "openstack", ownPrefix + "vsphere"}

const systemUUIDVariable = "$(" + agent.VarSystemUUID + ")"

// checkOwn finds what agents of csi-fencepost-agents must not be told, and what they have to be,
// so that none reads or cuts another machine than the node's. name is the program's.
func (o Options) checkOwn(name string) (errs []error) {
	if !strings.HasPrefix(name, ownPrefix) {
		return nil
	}
	held := false
	check := func(key, value string) {
		switch key = plain(key); {
		case strings.ReplaceAll(key, "_", "") == "notfoundisgone":
			errs = append(errs, fmt.Errorf("parameter %q is not allowed: a machine that is not found may run, where a right, a region or the right form of its name is missing; "+
				"see whether it is gone, and say so with csi-fencepost fence confirm", key))
		case strings.Contains(value, "$("+agent.VarInstanceID+")"):
			errs = append(errs, fmt.Errorf("parameter %q: $(%s) has lost whose ID it is, and the region; use $(%s)", key, agent.VarInstanceID, agent.VarProviderID))
		case key == "uuid" && value != systemUUIDVariable && value != "none":
			errs = append(errs, fmt.Errorf("parameter %q has to be %s, or none where the platform does not tell the node's", key, systemUUIDVariable))
		}
		held = held || key == "uuid"
	}
	for _, key := range slices.Sorted(maps.Keys(o.Parameters)) {
		check(key, o.Parameters[key])
	}
	for _, key := range slices.Sorted(maps.Keys(o.ParameterFiles)) {
		check(key, "")
	}
	for _, key := range slices.Sorted(maps.Keys(o.NodeParameters)) {
		for _, node := range slices.Sorted(maps.Keys(o.NodeParameters[key])) {
			check(key, o.NodeParameters[key][node])
		}
	}
	if !held && slices.Contains(uuidAgents, name) {
		errs = append(errs, errors.New("parameter uuid is missing: without it the program may read and cut off another machine than the node's, where addresses or numbers are mixed up; "+
			"give uuid: "+systemUUIDVariable+", or uuid: none where the platform does not tell the node's system UUID"))
	}
	return errs
}

package setup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
)

// Config is what the suite has to know. Only Address has to be set, and NodeIDs
// where the driver tells of fewer than two nodes.
type Config struct {
	// Address of the driver's Identity and Controller services: /path,
	// unix:///path, or a target of gRPC's such as dns:///host:port.
	Address string
	// DialOptions replace the default, no transport security.
	DialOptions []grpc.DialOption

	// NodeIDs are the IDs, as the driver has them, of two nodes or more that
	// exist and that the volume may be published to. Without them the driver is
	// asked (NodeGetInfo), and tells of one at most.
	NodeIDs []string
	// UnknownNodeID is the ID of a node that never existed; made up if empty,
	// which a driver may call malformed.
	UnknownNodeID string
	// GoneNodeID is the ID of a node that existed and does not any more.
	GoneNodeID string
	// RemoveNodeExec is a command of the shell that removes the node of the
	// environment's NODE_ID, for good: the last of NodeIDs, while the volume of
	// VOLUME_ID is published to it.
	RemoveNodeExec string

	// VolumeHandle is a volume to use instead of one that the suite creates. It
	// has to be published nowhere.
	VolumeHandle string
	// VolumeAttributes of VolumeHandle: those of its PersistentVolume.
	VolumeAttributes map[string]string
	// VolumeParameters for CreateVolume: those of the StorageClass.
	VolumeParameters map[string]string
	// VolumeSize in bytes.
	VolumeSize int64
	// AccessType is Mount or Block.
	AccessType string
	// FSType of a mounted volume; the driver's default if empty.
	FSType string
	// Topology is where the volume has to be, as segments; the node's of
	// NodeGetInfo if empty.
	Topology map[string]string
	Secrets  Secrets

	// Timeout is the deadline of each call, and how long is waited for what has
	// to happen.
	Timeout time.Duration
	// Watch is how long is looked for what must not happen.
	Watch time.Duration
	// Rounds of what is tried many times.
	Rounds int

	// WriterExec is a command of the shell that runs a writer (package writer)
	// on the first node, or WriterAddress is where one listens.
	WriterExec, WriterAddress string
}

// The access types.
const (
	Mount = "mount"
	Block = "block"
)

// Default is a Config with every default, and no driver.
func Default() Config {
	return Config{
		VolumeSize: 1 << 30,
		AccessType: Mount,
		Timeout:    60 * time.Second,
		Watch:      10 * time.Second,
		Rounds:     10,
	}
}

// Check returns everything that is wrong with the Config, in the words of the
// flags; nil if nothing is.
func (c *Config) Check() error {
	var errs []error
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.Address == "", "--csi-address is missing: the socket of the driver's controller, for example --csi-address=/run/csi/csi.sock")
	bad(len(c.NodeIDs) == 1, "--node-ids names one node, %q: a takeover needs two", strings.Join(c.NodeIDs, ""))
	bad(slices.Contains(c.NodeIDs, ""), "--node-ids has an empty ID in it, which a driver takes for all nodes")
	bad(len(slices.Compact(slices.Sorted(slices.Values(c.NodeIDs)))) < len(c.NodeIDs), "--node-ids names a node twice")
	bad(c.UnknownNodeID != "" && slices.Contains(c.NodeIDs, c.UnknownNodeID), "--unknown-node-id %q is among --node-ids: it has to be one that never existed", c.UnknownNodeID)
	bad(c.GoneNodeID != "" && slices.Contains(c.NodeIDs, c.GoneNodeID), "--gone-node-id %q is among --node-ids, which have to exist", c.GoneNodeID)
	bad(c.RemoveNodeExec != "" && c.GoneNodeID != "", "--remove-node-exec and --gone-node-id answer the same question: take one of them off")
	bad(c.RemoveNodeExec != "" && len(c.NodeIDs) == 0, "--remove-node-exec removes the last node of --node-ids, which are missing")
	bad(c.VolumeHandle != "" && len(c.VolumeParameters) > 0, "--volume-parameters-file is for a volume that is created, and --volume-handle %q exists: take one of them off", c.VolumeHandle)
	bad(c.VolumeHandle == "" && len(c.VolumeAttributes) > 0, "--volume-attributes-file belongs to --volume-handle, which is missing; for a volume that is created there is --volume-parameters-file")
	bad(c.VolumeSize <= 0, "--volume-size is %d bytes: it has to be more than 0", c.VolumeSize)
	bad(c.AccessType != Mount && c.AccessType != Block, "--access-type is %q: it has to be %s or %s", c.AccessType, Mount, Block)
	bad(c.AccessType == Block && c.FSType != "", "--fs-type is for --access-type=mount")
	bad(c.Timeout <= 0, "--timeout is %s: it has to be more than 0", c.Timeout)
	bad(c.Watch <= 0, "--watch is %s: it has to be more than 0", c.Watch)
	bad(c.Rounds < 1, "--rounds is %d: it has to be at least 1", c.Rounds)
	bad(c.WriterExec != "" && c.WriterAddress != "", "--writer-exec and --writer-address are two writers, and one is asked: take one of them off")
	return errors.Join(errs...)
}

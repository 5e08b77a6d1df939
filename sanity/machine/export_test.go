package machine

import "context"

// PlugUnlocked plugs a disk without QEMU's lock on its image.
func (m *Machine) PlugUnlocked(ctx context.Context, serial string, disk *Disk) error {
	return m.plug(ctx, serial, disk, "off")
}

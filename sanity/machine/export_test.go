package machine

import (
	"context"
	"os"
)

// PlugUnlocked plugs a disk without QEMU's lock on its image.
func (m *Machine) PlugUnlocked(ctx context.Context, serial string, disk *Disk) error {
	return m.plug(ctx, serial, disk, "off")
}

// Console is what the guest has printed.
func (m *Machine) Console() string {
	text, err := os.ReadFile(m.path("console"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

package fitness

import "github.com/csi-fencepost/csi-fencepost/sanity/fitness/setup"

// Config is what the suite has to know.
type Config = setup.Config

// NewConfig is a Config with every default, and no driver.
func NewConfig() Config { return setup.Default() }

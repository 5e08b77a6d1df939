// Package fitness asks a CSI driver what a takeover needs to know: a suite for
// storage vendors, in the style of csi-sanity. It ends in a verdict: fit for
// takeover, fit with these settings, or not fit and why.
//
//	Config ──▶ Ginkgo specs, one per Question ──▶ Outcomes ──▶ Verdict ──▶ Report
//	                     │                                        ▲
//	                     ▼                                        │
//	      the driver's socket, a writer on a node      deploy/profile, fence/config
//
// As a program it is csi-fencepost sanity. In a test of a vendor's own:
//
//	func TestMyDriver(t *testing.T) {
//		config := fitness.NewConfig()
//		config.Address, config.NodeIDs = socket, []string{"node-1", "node-2"}
//		fitness.Test(t, config)
//	}
//
// or, within a Ginkgo suite, fitness.GinkgoTest(&config).
//
// # What it guarantees
//
//   - It touches no volume that it did not create, but the one of
//     Config.VolumeHandle, and that one only if it is published nowhere, as far
//     as the driver tells.
//   - It cleans up on failure and on Ctrl-C too: it unpublishes the volume from
//     every node that it asked for, deletes what it created, and the Report says
//     what could not be cleaned.
//   - What could not be asked is unknown, never no; and never yes.
//   - A verdict's configuration is one that csi-fencepost accepts.
//
// # What it does not guarantee
//
// It sees what the driver answers, what the driver lists, and what a writer can
// write. A driver that lies in all three is believed. What it did not see fail in
// so many rounds may fail in one more.
package fitness

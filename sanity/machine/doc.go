// Package machine runs real machines for scenarios: QEMU virtual machines whose
// disks are hot-plugged over QMP, and a guest that writes to each disk it finds,
// all the time.
//
//	Lab ── Image (kernel, initramfs with the guest)
//	  └─ Machine ─┬─ Start, Kill (power), Pause, Resume (a hang)
//	              ├─ Plug, Unplug (a disk, over QMP)
//	              └─ guest: a numbered record every few ms, straight to the disk
//	Disk ── a raw image ── Verify: who wrote what, in which order
//
// It guarantees:
//
//   - Whether two machines can have one disk is decided by QEMU's lock on the
//     image, not by anything that this project wrote: a second Plug fails with
//     QEMU's own words, while the first machine is paused too.
//   - An Unplug that a hung guest did not answer keeps nobody from pausing,
//     resuming or killing the machine; it happens when the guest goes on.
//   - What Verify reads is what reached the disk: the guest writes with O_DIRECT
//     and O_SYNC. A write that was lost, overwritten, or made by a machine after
//     the next one's first is found.
//   - No machine outlives the process that started it.
//
// It does not guarantee speed: there is no KVM, a machine boots in 3 to 10 s.
package machine

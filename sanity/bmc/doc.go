// Package bmc runs a BMC on loopback for tests: Debian's ipmi_sim (package
// openipmi), in front of a power switch in Go.
//
//	ipmitool, fence_ipmilan, fence/agent/ipmi ──UDP──▶ ipmi_sim ──chassis_control──▶ PowerSwitch
//
// It misbehaves when told to: IgnorePower, SayOff, ReviveAfter, Hang, ClosePort,
// and a user whose Privilege is too low. Two nodes with one BMC are two nodes
// that are given one Addr.
//
// It guarantees:
//   - several BMCs can run side by side on one machine, each on a free port;
//   - ipmi_sim and what it runs end with Stop, at the end of Start's ctx, and with
//     the process that called Start; Stop also removes its folder.
//
// It does not guarantee:
//   - any system but Linux;
//   - that a user's limit is kept: ipmi_sim tells it to who asks, and yet grants
//     any privilege level (no real BMC should);
//   - a BMC's speed or its limits: ipmi_sim answers within milliseconds.
package bmc

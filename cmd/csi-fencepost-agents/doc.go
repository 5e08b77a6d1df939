// Csi-fencepost-agents are fence agents that ask a platform itself whether a machine is off:
//
//	fence/agent/program ──stdin──▶ fence_fencepost_NAME ─▶ contract ─▶ redfish, ec2, azure, gce, hcloud, openstack, proxmox, vsphere
//
// A link fence_fencepost_NAME to it, in a folder of agents, is an agent with the fence-agents
// contract; `csi-fencepost-agents NAME` is the same. What is guaranteed of all of them stands
// in package contract; what each reads as on and off is printed by
//
//	csi-fencepost-agents NAME --action=metadata
//
// It is a module of its own, which needs nothing of the main module but that contract: who
// imports that one, and the sidecar, links none of the clouds' SDKs. Of these it takes the
// credentials; package rest asks the API, but for Hetzner's, whose SDK is small, and vSphere's,
// which is SOAP.
package main

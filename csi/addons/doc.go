// Package addons talks to the csi-addons services of a CSI driver: which of
// them it has, and the one that cuts clients off the storage by their network
// addresses.
//
// # Guarantees
//
// A CIDR block that the driver answers is returned in one form, masked, IPv4
// never as IPv6. What cannot be understood as a block is handed over apart,
// never dropped. No error shows the value of a secret.
//
// # Non-guarantees
//
// A driver may answer OK to a fence that it has not finished, or finish one
// whose caller has gone: List tells.
package addons

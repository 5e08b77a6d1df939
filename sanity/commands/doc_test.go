// Package commands runs the commands that people type against a real API server:
// csi-fencepost explain, ledger and uninstall, and kubectl fencepost.
package commands

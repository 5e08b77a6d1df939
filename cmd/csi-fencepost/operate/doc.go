// Package operate is what people do to nodes and volumes: fence, release, ledger
// and uninstall. What is written is shown before, and who writes it is kept.
//
//	fence.go, fence_*.go  fence status, test, off, on, withdraw
//	narrate.go        each step of an agent, as it ends
//	confirm.go        fence confirm
//	confirm_*.go      what an operator's word is bound to, and what speaks against it
//	release.go        release
//	ledger.go, ledger_*.go  ledger export, ledger repair
//	uninstall.go, uninstall_*.go  uninstall: everything that we ever write
package operate

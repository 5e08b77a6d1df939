// Package agents holds csi-fencepost-agents against fence/agent/program, which runs it as it
// runs any fence agent.
//
// It has tests only: the program is a module of its own (cmd/csi-fencepost-agents), so that
// nobody who imports this one links the clouds' SDKs, and the contract is all that the two
// have in common. What each agent reads is tested there, at a fake of its platform's API.
//
// The tests build the program. The first build compiles the SDKs, which takes minutes.
package agents

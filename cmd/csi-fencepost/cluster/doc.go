// Package cluster is what the commands for people see of a cluster, and how they
// reach it and its fence agents. It reads; nothing here writes.
//
//	cluster.go       the client, the configuration, and who the operator is
//	node_now.go      what there is of a node now
//	machines.go      the same of all nodes, and what a fence agent is told
//	holdings.go      the volumes that machines of a name may hold
//	agents.go        the fence agents, and what they read
//	record_words.go  what a node's record claims, in words
//	lock.go          the names of the leaders' Leases
package cluster

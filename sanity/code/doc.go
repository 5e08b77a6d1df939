// Package code names what stands in Go code so that the name holds when lines move:
// a function by the folder of its package and its name, as Go prints it, an
// expression or a statement by itself, as gofmt would print it on one line.
//
//	fence         Reason.allows       HolderRevoked
//	proxy/guard   Guard.write         defer cancel()
//
// A name breaks only when what it names is renamed or changed. Then the error names
// what is nearest.
package code

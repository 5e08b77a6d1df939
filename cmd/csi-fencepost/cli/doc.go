// Package cli is what all subcommands of csi-fencepost have in common: how one
// is chosen, how its flags are read, what its errors are worth, and how text is
// laid out.
//
//	cli.go      the table of subcommands, usage errors, exit codes
//	flags.go    flags, help and -o
//	plugin.go   the names of the subcommands under kubectl fencepost
//	version.go  which build this is
//	text.go     paragraphs, colours, what is waited for
//	table.go    tables
//	words.go    numbers, times and names, as people read them
package cli

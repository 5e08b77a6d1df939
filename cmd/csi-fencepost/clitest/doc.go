// Package clitest is what the tests of the subcommands have in common: an API
// server over HTTP with a volume and its nodes, and a way to run a command line.
package clitest

// Package config is the configuration file of csi-fencepost.
//
// # Guarantees
//
// A configuration is taken whole or not at all. An unknown or repeated field,
// a wrong type, a value out of range and a second YAML document are errors that
// name the field by its full path; Parse finds all of them that it can at once.
// Every default is in Default and DefaultAgent. No error shows the value of an
// agent's parameter, nor what stands in place of the name of a secret's file.
//
// # Non-guarantees
//
// Files that the configuration names, and the API objects, are not looked at.
package config

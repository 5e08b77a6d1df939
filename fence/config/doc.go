// Package config is the configuration file of csi-fencepost.
//
// # Guarantees
//
// A configuration is taken whole or not at all. An unknown or repeated field,
// a wrong type, a value out of range and a second YAML document are errors that
// name the field by its full path; Parse finds all of them that it can at once.
// What this version cannot do is refused where it is asked for, and never
// ignored. Every default is in Default. No error shows the value of an agent's
// parameter.
//
// # Non-guarantees
//
// Files that the configuration names, and the API objects, are not looked at.
package config

// Package statusz shows what a csi-fencepost sees, as a page for people and as
// JSON beside it.
//
//	/statusz              HTML; ?refresh=SECONDS has the browser ask again
//	/statusz?format=json  the same State as JSON
//	/statusz.json         likewise
//
// # Guarantees
//
// Nothing is computed unless somebody asks, and at most once in two seconds
// however many ask: an endpoint that is asked too often must not take the API
// server's attention from the guard. Lists are bounded (MaxShown), and what was
// left out is counted.
//
// The page is one document with no script, no form and nothing loaded from
// elsewhere, and its headers forbid the browser all of it. Every text that comes
// from a driver, a device, a node or a person goes through one function that
// escapes it and replaces what does not print: Go's compiler keeps everything
// else out, as only a constant can become markup.
//
// The names of the JSON fields, and what they mean, stay as they are for as long
// as apiVersion does; fields may be added.
//
// # Non-guarantees
//
// The page has no log-in, as the metrics beside it have none: whoever reaches the
// endpoint reads the names of volumes and nodes. It is as free of secrets as the
// texts that it is given; the sources of those strip them.
//
// It is not html/template: that calls methods by name, and so makes the linker
// keep every method of every type.
package statusz

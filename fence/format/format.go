// Package format is how csi-fencepost reads and writes what it keeps in
// annotations, so that two neighbouring versions can run side by side.
//
//	{"version":1, "must":["seal"], "seal":…, "hint":…, "holders":[{"nodeID":…, "hint":…}]}
//
// A field that this version does not know is passed over, and kept: it is written
// again as it was read. A field that may not be passed over is named in the
// document's list "must"; a version that does not know it refuses the document. So a
// later version that adds a field decides by that list whether this one may go on.
//
// # Guarantees
//
// A Parse takes nothing silently but fields that it does not know: another version,
// a name that is there twice, text that is not UTF-8, a value of another type and a
// name in "must" that is not known are errors that say what and where. What is
// parsed and written again holds every field that was there.
//
// # Non-guarantees
//
// A name that a person misspelled is a field that is not known.
package format

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Later holds the fields of an object that this version does not know. A type that
// is to keep them embeds it: `json:",embed"`.
type Later = jsontext.Value

// Parse reads text into a document that this program knows in that version, with
// those fields of "must". An error says what is wrong.
func Parse(text string, version int, known []string, into any) error {
	var head struct {
		Version *int     `json:"version"`
		Must    []string `json:"must"`
	}
	// It goes first: in a later version anything may be otherwise, and that is not
	// what is wrong with it.
	if err := json.Unmarshal([]byte(text), &head); err != nil {
		return fmt.Errorf("it is not JSON as csi-fencepost writes it: %w", Explain(err))
	}
	unknown := slices.DeleteFunc(head.Must, func(field string) bool { return slices.Contains(known, field) })
	switch {
	case head.Version == nil:
		return fmt.Errorf("version is missing; it should be %d", version)
	case *head.Version > version:
		return &NewerError{fmt.Sprintf("version %d is newer than this csi-fencepost, which knows %d", *head.Version, version)}
	case *head.Version != version:
		return fmt.Errorf("version %d is unknown; it should be %d", *head.Version, version)
	case len(unknown) > 0:
		return &NewerError{"a newer csi-fencepost wrote it, with fields that this one would have to know: " + strings.Join(unknown, ", ")}
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return Explain(err)
	}
	return nil
}

// NewerError tells that a later version wrote the document, and that this one cannot
// read it: it is no garbage.
type NewerError struct{ why string }

func (e *NewerError) Error() string { return e.why + "; run the newer csi-fencepost" }

// IsNewer tells whether that is what is wrong.
func IsNewer(err error) bool {
	var newer *NewerError
	return errors.As(err, &newer)
}

// Text is a document's JSON: compact, and the same for equal documents.
func Text(document any) (string, error) {
	text, err := json.Marshal(document, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	return string(text), err
}

// Union is what either of two objects holds that this version does not know; of a
// field that both have, the first one's.
func Union(a, b Later) Later {
	if len(b) == 0 {
		return a
	}
	var fields, more map[string]jsontext.Value
	if json.Unmarshal(b, &fields) != nil || len(a) > 0 && json.Unmarshal(a, &more) != nil {
		return a
	}
	for name, value := range more {
		fields[name] = value
	}
	text, err := json.Marshal(fields, json.Deterministic(true))
	if err != nil {
		return a
	}
	return text
}

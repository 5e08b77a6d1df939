package kubeapi

import (
	"encoding/json"
	"strings"
)

// rawObject is a manifest as it was written.
type rawObject struct{ text json.RawMessage }

// UnmarshalJSON implements json.Unmarshaler.
func (r *rawObject) UnmarshalJSON(text []byte) error {
	r.text = append(json.RawMessage{}, text...)
	return nil
}

func (r *rawObject) into(v any) error { return json.Unmarshal(r.text, v) }

// plural of the kinds in deploy/admission, as their path has it.
func plural(kind string) string {
	kind = strings.ToLower(kind)
	if before, ok := strings.CutSuffix(kind, "y"); ok {
		return before + "ies"
	}
	return kind + "s"
}

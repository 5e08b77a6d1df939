package config

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Duration is written as "15s" or "1m30s".
type Duration struct {
	time.Duration
	// invalid is what was written, where that is none: the decoder does not
	// know the field's path, Validate does.
	invalid string
}

// UnmarshalJSON implements json.Unmarshaler. A value that is no duration is
// found by Validate.
func (d *Duration) UnmarshalJSON(text []byte) error {
	*d = Duration{invalid: string(text)}
	var s string
	if json.Unmarshal(text, &s) != nil {
		return nil
	}
	if parsed, err := time.ParseDuration(s); err == nil {
		*d = Duration{Duration: parsed}
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.Duration.String()) }

// written is the value as an error shows it: as it stands in the file, and nothing of a list
// or a group, in which anything may be.
func (d Duration) written() any {
	switch {
	case d.invalid == "":
		return d.String()
	case strings.ContainsAny(d.invalid[:1], "[{"):
		return omit
	}
	return json.RawMessage(d.invalid)
}

func (d Duration) check() string {
	if d.invalid != "" {
		return `must be a duration with its unit, such as "15s" or "2m"`
	}
	return ""
}

// Percent is written as "40%".
type Percent int

// notPercent marks what Validate has to refuse.
const notPercent Percent = -1

var percent = regexp.MustCompile(`^(0|[1-9][0-9]{0,2})%$`)

// UnmarshalJSON implements json.Unmarshaler. A value that is no percentage is
// found by Validate.
func (p *Percent) UnmarshalJSON(text []byte) error {
	*p = notPercent
	var s string
	if json.Unmarshal(text, &s) != nil || !percent.MatchString(s) {
		return nil
	}
	n, err := strconv.Atoi(strings.TrimSuffix(s, "%"))
	if err == nil {
		*p = Percent(n)
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (p Percent) MarshalJSON() ([]byte, error) { return json.Marshal(fmt.Sprintf("%d%%", int(p))) }

// Share is the percentage from 0 to 1.
func (p Percent) Share() float64 { return float64(p) / 100 }

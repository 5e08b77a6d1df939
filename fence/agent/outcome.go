package agent

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Outcome is what the levels came to for one machine. The zero Outcome proves
// nothing.
type Outcome struct {
	State State `json:"state"`
	// Kind is what State amounts to: fence.PowerReading if any of the agents
	// that State rests on proves power, fence.StorageFence otherwise; empty
	// with Unclear. A machine may live under a StorageFence.
	Kind fence.Kind `json:"kind,omitempty"`
	// Level that confirmed, from 1; 0: none did.
	Level int `json:"level,omitempty"`
	// ReadOn names the agents whose last reading was On. With Unclear and with
	// Off they show what there is to the contrary.
	ReadOn []string `json:"readOn,omitempty"`
	// Steps are the calls in the order in which they ended.
	Steps []Step `json:"steps,omitempty"`
	// Why State is what it is, in words for a person.
	Why string `json:"why"`
	// Outstanding is nil, or an Off or On did not end in time and may still
	// take effect: hold the node's lock until the channel is closed. It never
	// is while an agent hangs for ever.
	Outstanding <-chan struct{} `json:"-"`
}

// Step is one call of one agent, for the audit trail. A status step after an
// Off stands for all readings until Off was read or time was up.
type Step struct {
	Agent string `json:"agent"`
	// Action is status, off or on.
	Action string `json:"action"`
	// Level and Attempt count from 1.
	Level   int   `json:"level"`
	Attempt int   `json:"attempt"`
	State   State `json:"state"`
	// Checked, OwnWord, Named and Cut are a reading's.
	Checked bool     `json:"-"`
	OwnWord bool     `json:"-"`
	Named   []string `json:"-"`
	Cut     []string `json:"-"`
	// Hangs tells that the call did not end in time, and that what it sends may take effect later.
	Hangs bool `json:"-"`
	// Detail is at most 2048 bytes, for it may name what was cut, and Err 512.
	Detail  string        `json:"detail,omitempty"`
	Err     string        `json:"error,omitempty"`
	Started time.Time     `json:"started"`
	Took    time.Duration `json:"took"`
}

// MarshalText writes a State as it is read aloud: unclear, on, off.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *State) UnmarshalText(text []byte) error {
	for _, state := range []State{Unclear, On, Off} {
		if state.String() == string(text) {
			*s = state
			return nil
		}
	}
	return fmt.Errorf("%q is no state of a machine: want unclear, on or off", text)
}

// known is the State, or Unclear for one that an agent made up.
func known(s State) State {
	if s != On && s != Off {
		return Unclear
	}
	return s
}

const (
	maxDetail = 2048
	maxWords  = 512
)

// clip bounds a text of a device; whole characters stay.
func clip(text string, most int) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= most {
		return text
	}
	end := most - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

package main

import (
	"fmt"
	"strings"
)

// command measures a section again: the flags that change its figures.
func (b *bench) command(section string) string {
	text := "go run ./sanity/bench -only=" + section
	switch section {
	case "pass", "publish", "list", "guard":
		text += fmt.Sprintf(" -rounds=%d -each=%s", b.rounds, b.each)
	case "cycle":
		text += fmt.Sprintf(" -cycles=%d", b.cycles)
	case "failover":
		text += fmt.Sprintf(" -failovers=%d -volumes=%d", b.failovers, b.volumes)
		if len(b.kinds) < len(failoverKinds) {
			text += " -kinds=" + strings.Join(b.kinds, ",")
		}
		if len(b.manager) > 0 {
			text += " -manager=" + strings.Join(b.manager, ",")
		}
	case "storm":
		text += b.stormCommand()
	case "backoff":
		text += fmt.Sprintf(" -waits=%d", b.waits)
	}
	return text
}

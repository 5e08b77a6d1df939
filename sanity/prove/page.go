package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// page is docs/PROOF.md.
func page(here place, all []outcome) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# The case for safety\n\nWritten by `make prove`; do not edit. What it rests on, and what is not promised, stands in [EVIDENCE.md](EVIDENCE.md) and [GUARDS.md](GUARDS.md).\n\n")
	fmt.Fprintf(&out, "- csi-fencepost %s, %s UTC\n- %s\n- %s\n\n", here.commit, here.when.Format("2006-01-02 15:04"), here.versions, here.machine)
	fmt.Fprintf(&out, "| part | what was counted | |\n| --- | --- | --- |\n")
	for _, o := range all {
		fmt.Fprintf(&out, "| **%s** | %s | %s |\n", o.part.name, o.label(), duration(o.result.Seconds))
		for _, f := range o.result.Figures {
			fmt.Fprintf(&out, "| | %s | %s |\n", cell(f.Name), figure(f))
		}
	}
	for _, o := range all {
		fmt.Fprintf(&out, "\n## %s%s\n\n%s\n\n```sh\n%s\n```\n", strings.ToUpper(o.part.name[:1]), o.part.name[1:], o.part.about, command(o.result.Command))
		list(&out, "What failed", o.result.Failures)
		list(&out, "What is left", o.result.Left)
	}
	return out.Bytes()
}

func list(out *bytes.Buffer, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s:\n\n", title)
	for _, line := range lines {
		fmt.Fprintf(out, "- %s\n", strings.ReplaceAll(strings.TrimSpace(line), "\n", "\n  "))
	}
}

// command is how to repeat a part: where its result goes is of this run alone.
func command(text string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(text), func(word string) bool { return strings.HasPrefix(word, "-result=") }), " ")
}

// cell keeps a text in one cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

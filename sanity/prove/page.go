package main

import (
	"bytes"
	"fmt"
	"strings"
)

// page is sanity/prove/RESULTS.md.
func page(here place, all []outcome) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# The case for safety\n\nWritten by `make prove`; do not edit. What counts as proof that a node does not write: [evidence.md](../../docs/use/evidence.md). What is assumed of the world: [model.md](../../docs/design/model.md#what-the-model-assumes-of-the-world). What is not promised: [architecture.md](../../docs/design/architecture.md#limits-what-it-does-not-guarantee).\n\n")
	warn(&out, all)
	fmt.Fprintf(&out, "- csi-fencepost %s, %s UTC\n- %s\n- %s\n\n", here.commit, here.when.Format("2006-01-02 15:04"), here.versions, here.machine)
	fmt.Fprintf(&out, "| part | what was counted | |\n| --- | --- | --- |\n")
	for _, o := range all {
		label := o.label()
		if o.fault() != "" || o.quick {
			label = "**" + label + "**"
		}
		fmt.Fprintf(&out, "| **%s** | %s | %s |\n", o.part.name, label, duration(o.result.Seconds))
		for _, failure := range o.failures() {
			fmt.Fprintf(&out, "| | **FAILED**: %s | |\n", cell(firstLine(failure)))
		}
		for _, f := range o.result.Figures {
			fmt.Fprintf(&out, "| | %s | %s |\n", cell(f.Name), figure(f))
		}
	}
	out.WriteString(promisesText())
	for _, o := range all {
		fmt.Fprintf(&out, "\n## %s%s\n\n%s\n\n```sh\n%s\n```\n", strings.ToUpper(o.part.name[:1]), o.part.name[1:], o.part.about, repeatable(strings.Fields(o.result.Command)))
		list(&out, "**What failed**", o.failures())
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

// warn says above everything else why the page is no case for safety.
func warn(out *bytes.Buffer, all []outcome) {
	for _, o := range all {
		if n := len(o.failures()); n > 0 {
			fmt.Fprintf(out, "> **THE CASE DOES NOT HOLD: %s FAILED** (%d failures, [the list](#%s)).\n\n", o.part.name, n, o.part.name)
		}
	}
	if names := those(all, func(o outcome) bool { return o.quick }); names != "" {
		fmt.Fprintf(out, "> **This is no case for safety:** %s ran with -quick, much smaller than they can be.\n\n", names)
	}
}

// cell keeps a text in one cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

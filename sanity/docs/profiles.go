package main

import (
	"fmt"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/deploy/profile"
)

const profilesPage = "docs/vendors/profiles.md"

const profilesHead = `# What is known of CSI drivers

Written by ` + "`make docs`" + ` from [deploy/profile](../../deploy/profile); do not edit. Each answer was read in the driver's source, in the version that the [sources](#sources) name, or in a document of its vendor. "?" is unknown: no source says it, or it depends on how the driver is installed; csi-fencepost then takes the answer that is safe. "–": it does not matter. Another version may do other things: [ask the driver itself](fitness.md).

- **Something to guard**: Kubernetes has it publish and unpublish volumes. "no": no call is made that anybody could refuse.
- **Lists published nodes**: ListVolumes names the nodes of a volume as the storage has them ([why](embed.md#list-published-nodes)).
- **Unpublish revokes access** from a client that goes on writing ([why](embed.md#does-unpublish-revoke-access)). No driver's source says so. "no" is a source that says the opposite.

` + "`csi-fencepost inject`" + ` says these when it finds the driver, and so does the [fitness suite](fitness.md) where the driver does otherwise. None of them changes the configuration that inject proposes, which is the safe one. A driver that is not here is not known to be bad: [tell us](embed.md#tell-us).

| driver | something to guard | lists published nodes | unpublish revokes access | what to know |
|---|---|---|---|---|
`

// profilesText is docs/vendors/profiles.md.
func profilesText() string {
	var out strings.Builder
	out.WriteString(profilesHead)
	for _, p := range profile.All() {
		var know []string
		if p.TaintFirst.Known == profile.Yes {
			know = append(know, "it fences in unpublish only with the out-of-service taint on the node: taint first, unpublish second")
		}
		for _, n := range p.Notes {
			know = append(know, n.Text)
		}
		for i, k := range know {
			know[i] = strings.ToUpper(k[:1]) + k[1:] + "."
		}
		lists, revokes := answer(p.ListsPublished), answer(p.RevokesAccess)
		if p.Publishes.Known == profile.No {
			lists, revokes = "–", "–"
		}
		fmt.Fprintf(&out, "| %s<br>%s | %s | %s | %s | %s |\n", p.Name, namesOf(&p), answer(p.Publishes), lists, revokes, strings.Join(know, "<br>"))
	}
	out.WriteString("\n## Sources\n\n")
	for _, p := range profile.All() {
		var sources []string
		for _, s := range []struct {
			about string
			fact  profile.Fact
		}{{"to guard", p.Publishes}, {"lists", p.ListsPublished}, {"revokes", p.RevokesAccess}, {"taint first", p.TaintFirst}} {
			if s.fact.Known != profile.Unknown {
				sources = append(sources, s.about+": "+s.fact.Source)
			}
		}
		for i, n := range p.Notes {
			sources = append(sources, fmt.Sprintf("to know, %d: %s", i+1, n.Source))
		}
		fmt.Fprintf(&out, "- **%s**, read at %s. %s.\n", p.Name, p.Read, strings.Join(sources, ". "))
	}
	return out.String()
}

// answer is "?" where nothing is known.
func answer(f profile.Fact) string {
	if f.Known == profile.Unknown {
		return "?"
	}
	return string(f.Known)
}

// namesOf are those of its CSIDriver objects.
func namesOf(p *profile.Profile) string {
	var names []string
	for _, name := range p.Drivers {
		if strings.HasPrefix(name, ".") {
			name = "PREFIX" + name
		}
		names = append(names, "`"+name+"`")
	}
	return strings.Join(names, ", ")
}

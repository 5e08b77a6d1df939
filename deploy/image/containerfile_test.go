package main

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// words are those of a list in the Containerfile, one in a line, between two
// texts.
func words(t *testing.T, text, after, before string) []string {
	t.Helper()
	_, rest, ok := strings.Cut(text, after)
	list, _, end := strings.Cut(rest, before)
	found := regexp.MustCompile(`(?m)^ +([a-z0-9_-]+) \\$`).FindAllStringSubmatch(list, -1)
	if !ok || !end || len(found) == 0 {
		t.Fatalf("nothing between %q and %q", after, before)
	}
	var all []string
	for _, f := range found {
		all = append(all, f[1])
	}
	if !slices.IsSorted(all) {
		t.Errorf("not sorted: %q", all)
	}
	return all
}

// No engine builds this recipe in the tests: so what it names has to exist.
// testdata holds the agents of Debian's package, as dpkg -L lists them.
func TestTheRecipeNamesAgentsThatDebianHas(t *testing.T) {
	recipe := string(read(t, "Containerfile"))
	debian := strings.Fields(string(read(t, "testdata/fence-agents_4.12.1-1.txt")))
	for _, agent := range words(t, recipe, "RUN for agent in \\\n", "; do") {
		if !slices.Contains(debian, agent) {
			t.Errorf("Debian's fence-agents has no %s", agent)
		}
	}
	packages := words(t, recipe, "--no-install-recommends \\\n", "&& rm")
	if !slices.Contains(packages, "fence-agents") {
		t.Errorf("packages %q lack the agents", packages)
	}
	checkAgainstDebian(t, packages, debian)
}

// checkAgainstDebian asks the machine where it is a Debian that knows.
func checkAgainstDebian(t *testing.T, packages, agents []string) {
	t.Helper()
	// It also fails where it knows only some of them; what it knows it prints.
	out, err := exec.Command("apt-cache", append([]string{"show", "--no-all-versions"}, packages...)...).Output()
	if len(out) == 0 {
		t.Logf("apt-cache knows nothing: %v", err)
		packages = nil
	}
	for _, p := range packages {
		if !strings.Contains("\n"+string(out), "\nPackage: "+p+"\n") {
			t.Errorf("Debian has no package %s", p)
		}
	}
	version, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", "fence-agents").Output()
	if err != nil || string(version) != "4.12.1-1" {
		t.Logf("fence-agents 4.12.1-1 is not installed (%q, %v)", version, err)
		return
	}
	out, err = exec.Command("dpkg", "-L", "fence-agents").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, agent := range agents {
		if !strings.Contains(string(out), "/usr/sbin/"+agent+"\n") {
			t.Errorf("testdata names %s, which the package does not hold", agent)
		}
	}
}

// Nobody but who changes this file changes what the recipe begins with.
func TestTheRecipesBaseIsPinned(t *testing.T) {
	if !regexp.MustCompile(`(?m)^ARG BASE=docker\.io/library/debian:bookworm-slim@sha256:[0-9a-f]{64}\nFROM \$\{BASE\}$`).Match(read(t, "Containerfile")) {
		t.Error("the base is not Debian 12 by its digest")
	}
}

// The two images start the same program as the same user, and have the same agents of ours.
func TestTheRecipeStartsWhatTheImageStarts(t *testing.T) {
	recipe := string(read(t, "Containerfile"))
	_, ours, _ := strings.Cut(recipe, "/usr/sbin/csi-fencepost-agents\n")
	if names := words(t, ours, "RUN for agent in \\\n", "; do ln -s csi-fencepost-agents /usr/sbin/fence_fencepost_$agent"); !slices.Equal(names, slices.Sorted(slices.Values(agentNames))) {
		t.Errorf("it has %q, and the image %q", names, agentNames)
	}
	for _, line := range []string{
		"USER " + user,
		`ENTRYPOINT ["/` + programPath + `"]`,
		"COPY --chmod=0755 csi-fencepost_${VERSION}_linux_${TARGETARCH} /" + programPath,
		"COPY --chmod=0755 csi-fencepost-webhook_${VERSION}_linux_${TARGETARCH} /" + webhookPath,
		"COPY --chmod=0755 csi-fencepost-agents_${VERSION}_linux_${TARGETARCH} /" + agentsFolder + "csi-fencepost-agents",
	} {
		if !strings.Contains(recipe, "\n"+line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
}

package outcome

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// Page is what the catalogue's page is made of, besides the outcomes.
type Page struct {
	// Measured is the version of Kubernetes of the first tables: see Book.Measured.
	Measured string
	// Others have a table each after those, in this order.
	Others []Version
	// Between are sentences on what one of the versions does otherwise than another
	// where a story or a reader can notice.
	Between  []string
	Chapters []Chapter
	// Kinds are the rows of the table of workloads and access modes; the first one
	// is its head.
	Kinds [][]string
	// Kubelets is the table of what kubelets do.
	Kubelets string
	// Address of a reference of a story's From.
	Address func(ref string) (string, error)
}

// Version of Kubernetes that stories are played on besides the measured one.
type Version struct {
	// Kubernetes is the version, such as v1.37.2.
	Kubernetes string
	// What it is and how to play on it: sentences.
	What string
}

// Chapter is a part of the page.
type Chapter struct {
	Title   string
	Stories []Story
}

// Story is a row.
type Story struct {
	Name, Rule string
	// From are references, with commas.
	From string
	// GuardedOnly tells that there is nothing to compare with Kubernetes alone.
	GuardedOnly bool
	// Known says why the story is known to fail with csi-fencepost, in sentences;
	// empty: it has to pass.
	Known string
}

// Write makes the page, in Markdown. The error names a reference that leads
// nowhere.
func (p Page) Write(b *Book) (string, error) {
	var out strings.Builder
	out.WriteString(p.head(b))
	for _, c := range p.Chapters {
		fmt.Fprintf(&out, "\n## %s\n\n| story | what it holds up | reported as | Kubernetes alone | with csi-fencepost |\n|---|---|---|---|---|\n", c.Title)
		for _, s := range c.Stories {
			links, err := p.links(s.From)
			if err != nil {
				return "", fmt.Errorf("story %s: %w", s.Name, err)
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", s.Name, cell(s.holds()), links, p.alone(b, s), played(b, s.Name, false, p.Measured))
		}
	}
	out.WriteString(p.kinds())
	out.WriteString(p.kubelets())
	out.WriteString(p.between())
	for _, v := range p.Others {
		out.WriteString(p.other(b, v))
	}
	return out.String(), nil
}

// kubelets is the part that says how far a hollow node is from a real one.
func (p Page) kubelets() string {
	return `
## What a kubelet does, and what stands for it here

Most stories have hollow nodes: kubemark's kubelet, which is Kubernetes' own code with a container runtime and mounts that only pretend. Those whose names begin with ` + "`real-`" + ` have Kubernetes' kubelet, containerd, containers that write a database, and ext4. The simulation has a kubelet in the model's words. This is what the three were seen to do, half a minute later, of a volume whose container writes: whether the Node lists it in volumesInUse, and what is so on the machine. ` + "`make real`" + ` asks the first two again, ` + "`sanity/simulate`" + ` the third.

` + p.Kubelets + `
Where the simulation differs it is on the side of danger: to it, whoever has a volume mounted writes. A real kubelet that restarts ends the containers of pods that are gone, with one second of grace whatever the pod asked for; that a disk which does not answer keeps it from that is what ` + "`real-hung-lost`" + ` is about.
`
}

// holds is what the story holds up, or will.
func (s Story) holds() string {
	if s.Known == "" {
		return s.Rule
	}
	return s.Rule + " **Not so yet, known to fail with csi-fencepost:** " + s.Known
}

// knownNames are the stories that are known to fail.
func (p Page) knownNames() (names []string) {
	for _, s := range p.stories() {
		if s.Known != "" {
			names = append(names, s.Name)
		}
	}
	return names
}

// known says which they are.
func (p Page) known() string {
	names := p.knownNames()
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("\n%d stories are known to fail with csi-fencepost, each for the reason in its row: `%s`. In them a volume is stuck that Kubernetes alone gives on, or would; none of them has two writers. `make test` leaves them out, `make known-to-fail` plays them, and complains about one that passes.\n", len(names), strings.Join(names, "`, `"))
}

// head says how to read the tables, and what they add up to.
func (p Page) head(b *Book) string {
	c, asKnown := p.Count(b, p.Measured), ""
	if c.Known > 0 {
		asKnown = fmt.Sprintf(" and %d failed as they are known to", c.Known)
	}
	return fmt.Sprintf(`# What happens without and with csi-fencepost

Written by `+"`make catalogue`"+` from [what came of each story](outcomes.json); nobody edits it by hand. Each story was played on a real etcd, kube-apiserver, kube-controller-manager, scheduler, external-attacher and kubelets, on Kubernetes %s and its own clocks (6 minutes to the force detach, 50 s to NotReady) unless a row says "short clocks" (15 s and 21 s). Each was played once: the times are of that one play. In small type: the date and the commit that was played ("+": with changes of csi-fencepost that were not committed yet).

**Bold** is what the storage array itself saw: a volume taken from a node that used it, two nodes that could write to it, two that did.

%d stories. With csi-fencepost %d were played, %d of them with a violation, %d failed%s. With Kubernetes alone %d were played (%d have nothing to compare), %d with a violation, %d failed.
`, p.Measured, c.Stories, c.Guarded.Played, c.Guarded.Violated, c.Guarded.Failed, asKnown, c.Alone.Played, c.GuardedOnly, c.Alone.Violated, c.Alone.Failed) + p.known()
}

// Counts are what the tables add up to.
type Counts struct {
	Stories, GuardedOnly int
	Guarded, Alone       Tally
	// Known are the plays with csi-fencepost that failed as they are known to. They
	// are played, and are neither in Guarded.Failed nor in Broken.
	Known int
	// Missing are the plays that have no outcome: "name", or "name (alone)".
	Missing []string
	// Broken are the plays with csi-fencepost that failed otherwise or had a violation,
	// and those that passed although they are known to fail.
	Broken []string
}

// Tally of the plays of one kind.
type Tally struct{ Played, Violated, Failed int }

// Count adds the outcomes up.
func (p Page) Count(b *Book, kubernetes string) Counts {
	var c Counts
	for _, chapter := range p.Chapters {
		for _, s := range chapter.Stories {
			c.Stories++
			if o, ok := b.Find(s.Name, false, kubernetes); !ok {
				c.Missing = append(c.Missing, s.Name)
			} else if o.Known && s.Known != "" {
				c.Guarded.Played++
				c.Known++
			} else if c.Guarded.add(o); o.Failed || o.Violated() || s.Known != "" {
				c.Broken = append(c.Broken, s.Name)
			}
			if s.GuardedOnly {
				c.GuardedOnly++
			} else if o, ok := b.Find(s.Name, true, kubernetes); !ok {
				c.Missing = append(c.Missing, s.Name+" (alone)")
			} else {
				c.Alone.add(o)
			}
		}
	}
	return c
}

func (t *Tally) add(o Outcome) {
	t.Played++
	if o.Violated() {
		t.Violated++
	}
	if o.Failed {
		t.Failed++
	}
}

func (p Page) alone(b *Book, s Story) string {
	if s.GuardedOnly {
		return "(nothing to compare)"
	}
	return played(b, s.Name, true, p.Measured)
}

// played is the cell of one play.
func played(b *Book, story string, alone bool, kubernetes string) string {
	o, ok := b.Find(story, alone, kubernetes)
	if !ok {
		return "*not played yet*"
	}
	var parts []string
	switch {
	case o.Known:
		parts = append(parts, "**fails, as known**")
	case o.Failed:
		parts = append(parts, "**failed**")
	}
	if o.Text != "" {
		parts = append(parts, cell(o.Text))
	}
	parts = append(parts, o.Seen()...)
	stamp := o.Began.UTC().Format("2006-01-02") + " " + o.Commit
	if o.Clocks == Short {
		stamp += ", short clocks"
	}
	return strings.Join(parts, "; ") + " <sub>" + stamp + "</sub>"
}

// Seen is what the storage array saw, in words for the page; none: nothing wrong.
func (o Outcome) Seen() (out []string) {
	switch {
	case o.DoubleWrites > 0:
		out = append(out, fmt.Sprintf("**two nodes wrote at once (%d writes mixed up)**", o.DoubleWrites))
	case o.CouldDoubleWrite > 0:
		out = append(out, "**two nodes could write at once**")
	}
	if o.TakenInUse > 0 {
		out = append(out, "**volume taken from a node that used it**")
	}
	return out
}

// kinds is the table of workloads and access modes.
func (p Page) kinds() string {
	if len(p.Kinds) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString("\n## Workloads and access modes\n\nWhich stories play which; a dash: none needs to, and why.\n\n")
	for i, row := range p.Kinds {
		fmt.Fprintf(&out, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			out.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	return out.String()
}

// between is what is known of the differences between the versions.
func (p Page) between() string {
	if len(p.Between) == 0 {
		return ""
	}
	return "\n## From one Kubernetes to the next\n\n- " + strings.Join(p.Between, "\n- ") + "\n"
}

// other is the table of what was played on another Kubernetes than the measured one.
func (p Page) other(b *Book, v Version) string {
	var rows strings.Builder
	for _, s := range p.stories() {
		_, guarded := b.Find(s.Name, false, v.Kubernetes)
		_, alone := b.Find(s.Name, true, v.Kubernetes)
		if !guarded && !alone {
			continue
		}
		of := "(nothing to compare)"
		if !s.GuardedOnly {
			of = played(b, s.Name, true, v.Kubernetes)
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", s.Name, of, played(b, s.Name, false, v.Kubernetes))
	}
	table := "No story was played on it yet.\n"
	if rows.Len() > 0 {
		table = "Stories that were not played on it are left out. " + p.differs(b, v) + "\n| story | Kubernetes alone | with csi-fencepost |\n|---|---|---|\n" + rows.String()
	}
	return fmt.Sprintf("\n## The same on Kubernetes %s\n\n%s %s", v.Kubernetes, v.What, table)
}

// differs names the plays that came out otherwise than on the measured Kubernetes:
// that failed, or in which the storage array saw something else.
func (p Page) differs(b *Book, v Version) string {
	var other []string
	compared := 0
	for _, s := range p.stories() {
		for _, alone := range []bool{false, true} {
			here, ok := b.Find(s.Name, alone, v.Kubernetes)
			there, both := b.Find(s.Name, alone, p.Measured)
			if !ok || !both || alone && s.GuardedOnly {
				continue
			}
			compared++
			if x, y := here.verdict(), there.verdict(); x != y {
				way := "with csi-fencepost"
				if alone {
					way = "Kubernetes alone"
				}
				other = append(other, fmt.Sprintf("- `%s`, %s: %s; on %s %s.\n", s.Name, way, x, p.Measured, y))
			}
		}
	}
	if len(other) == 0 {
		return fmt.Sprintf("In each of the %d plays that %s has too, the storage array saw the same.\n", compared, p.Measured)
	}
	return fmt.Sprintf("In %d of the %d plays that %s has too, the storage array saw the same; not in these:\n\n%s", compared-len(other), compared, p.Measured, strings.Join(other, ""))
}

// verdict is how a play ended, without its times and its counts.
func (o Outcome) verdict() string {
	var out []string
	switch {
	case o.Known:
		out = append(out, "fails as known")
	case o.Failed:
		out = append(out, "failed")
	}
	switch {
	case o.DoubleWrites > 0:
		out = append(out, "two nodes wrote at once")
	case o.CouldDoubleWrite > 0:
		out = append(out, "two nodes could write at once")
	}
	if o.TakenInUse > 0 {
		out = append(out, "volume taken from a node that used it")
	}
	return cmp.Or(strings.Join(out, ", "), "nothing wrong")
}

var issue = regexp.MustCompile(`^https://github\.com/([^/]+/[^/]+)/issues/(\d+)$`)

// links of the references.
func (p Page) links(from string) (string, error) {
	var out []string
	for _, ref := range References(from) {
		address, err := p.Address(ref)
		if err != nil {
			return "", err
		}
		text := address
		if m := issue.FindStringSubmatch(address); m != nil {
			text = m[1] + "#" + m[2]
		} else if _, after, ok := strings.Cut(address, "//"); ok {
			text, _, _ = strings.Cut(after, "/")
		}
		out = append(out, fmt.Sprintf("[%s](%s)", text, address))
	}
	return strings.Join(out, ", "), nil
}

// References of a story's From.
func References(from string) []string {
	var refs []string
	for ref := range strings.SplitSeq(from, ",") {
		if ref = strings.TrimSpace(ref); ref != "" {
			refs = append(refs, ref)
		}
	}
	return refs
}

func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

package fitness

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/deploy/profile"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
)

// Verdict on a driver.
type Verdict string

// The verdicts. The zero one is none.
const (
	FitForTakeover  Verdict = "fit for takeover"
	FitWithSettings Verdict = "fit with these settings"
	NotFit          Verdict = "not fit"
	CannotTell      Verdict = "cannot tell"
)

// judge fills in what follows from the outcomes; it does no I/O.
func (r *Report) judge() {
	known := profile.For(r.Driver)
	r.Verdict, r.Reasons, r.Configuration, r.Besides = FitForTakeover, nil, "", nil
	r.Differs = differences(known, r.Outcomes)
	needs := r.needs(known)
	switch {
	case r.reasons(Unfit):
		r.Verdict = NotFit
		return
	case r.Problem != "":
		r.Verdict, r.Reasons = CannotTell, []string{r.Problem}
		return
	case r.reasons(Missing):
		r.Verdict = CannotTell
		return
	case len(r.Outcomes) < len(questions):
		r.Verdict, r.Reasons = CannotTell, []string{fmt.Sprintf("only %d of %d questions were asked", len(r.Outcomes), len(questions))}
		return
	case len(needs) > 0:
		r.Verdict = FitWithSettings
		r.reasons(Setting)
		if slices.Contains(needs, TaintFirst) {
			r.Reasons = append(r.Reasons, "taint first, unpublish second: "+known.TaintFirst.Source+".")
		}
	}
	revokes := r.answer(nameRevokes) == Yes && known.RevokesAccess.Known != profile.No && known.TaintFirst.Known != profile.Yes
	r.Configuration = snippet(needs, revokes)
	r.Besides = r.besides(needs, known)
}

// reasons are taken from the outcomes of an effect; false: there is none.
func (r *Report) reasons(e Effect) bool {
	saw := map[string]bool{}
	for _, o := range r.Outcomes {
		if o.Effect == e && !saw[o.Saw] { // one cause may keep many questions from being asked
			saw[o.Saw] = true
			r.Reasons = append(r.Reasons, strings.TrimSpace(fmt.Sprintf("%s: %s. %s", o.Question, o.Saw, o.Means)))
		}
	}
	return len(r.Reasons) > 0
}

// needs are those of the outcomes, and what is known of the driver besides.
func (r *Report) needs(known *profile.Profile) []Need {
	var needs []Need
	for _, o := range r.Outcomes {
		if o.Needs != "" && !slices.Contains(needs, o.Needs) {
			needs = append(needs, o.Needs)
		}
	}
	if known.TaintFirst.Known == profile.Yes {
		needs = append(needs, TaintFirst)
	}
	return needs
}

func (r *Report) answer(name string) Answer {
	for _, o := range r.Outcomes {
		if o.Question == name {
			return o.Answer
		}
	}
	return Unknown
}

// differences are where the driver does other things than deploy/profile has it.
func differences(known *profile.Profile, outcomes []Outcome) []string {
	var differs []string
	for _, o := range outcomes {
		fact, about := profile.Fact{}, ""
		switch o.Question {
		case nameOffers:
			fact, about = known.Publishes, "it publishes volumes"
		case nameListed:
			fact, about = known.ListsPublished, "it lists published nodes truthfully"
		case nameRevokes:
			fact, about = known.RevokesAccess, "unpublish revokes access"
		}
		if fact.Known == profile.Unknown || o.Answer == Unknown || string(fact.Known) == string(o.Answer) {
			continue
		}
		differs = append(differs, fmt.Sprintf("%s: the profile of %s says %s (%s), and here: %s", about, known.Name, fact.Known, fact.Source, o.Saw))
	}
	return differs
}

// snippet is a configuration with every field that the verdict is about.
func snippet(needs []Need, revokes bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\n", config.APIVersion, config.Kind)
	guard := slices.Contains(needs, Guard)
	if guard {
		fmt.Fprintf(&b, "mode: %s # never %s: nothing else keeps a second node out\n", config.Enforce, config.Observe)
	}
	b.WriteString("driver:\n")
	if revokes {
		b.WriteString("  unpublishRevokesAccess: true # as the writer saw it\n")
	} else {
		b.WriteString("  unpublishRevokesAccess: false\n")
	}
	if guard {
		fmt.Fprintf(&b, "unpublish:\n  unfenced: %s # never %s\n", config.Refuse, config.Forward)
	}
	if slices.Contains(needs, TaintFirst) {
		b.WriteString("evidence:\n  outOfServiceTaint: true # and on the node before the unpublish\n")
	}
	return b.String()
}

// besides is what the configuration cannot say.
func (r *Report) besides(needs []Need, known *profile.Profile) []string {
	var texts []string
	for _, n := range needs {
		switch n {
		case Guard:
			texts = append(texts, "external-attacher has to be pointed at csi-fencepost's socket, and nothing else at the driver's: the driver itself keeps no second node out.")
		case Time:
			texts = append(texts, fmt.Sprintf("external-attacher needs --timeout=%ds at least: the longest unpublish and the longest publish, and a half more.", r.attacherSeconds()))
		case TaintFirst:
			texts = append(texts, fmt.Sprintf("Taint first, unpublish second (%s). With failover.enabled csi-fencepost puts the taint on a node that it has fenced; without, put it on before fence confirm.", known.TaintFirst.Source))
		}
	}
	switch {
	case r.answer(nameRevokes) == Yes && known.TaintFirst.Known == profile.Yes:
		texts = append(texts, "unpublishRevokesAccess stays false although the writer was cut off: what this driver's unpublish revokes, an unfence of the node gives back.")
	case r.answer(nameRevokes) == Yes && known.RevokesAccess.Known == profile.No:
		texts = append(texts, "unpublishRevokesAccess stays false although the writer was cut off: the driver's profile says otherwise.")
	case r.answer(nameRevokes) == Yes:
		texts = append(texts, "unpublishRevokesAccess is for a revocation of this one volume that outlives an unfence of the node. Leave it false where unpublish puts the whole node on a blocklist.")
	default:
		texts = append(texts, "Something has to tell that a silent node is off: a fence agent in fencing.levels, the cloud, or a person (docs/use/evidence.md).")
	}
	return texts
}

// attacherSeconds is a --timeout with room, in whole ten seconds.
func (r *Report) attacherSeconds() int {
	longest := 0.0
	for _, c := range r.Calls {
		if c.Method == "ControllerPublishVolume" || c.Method == "ControllerUnpublishVolume" {
			longest += c.Max
		}
	}
	return int(math.Ceil(longest*1.5/10)) * 10
}

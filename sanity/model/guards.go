package model

// World bounds what may go wrong, so that all of it can be explored.
type World struct {
	Name    string
	Defines []string
}

// Worlds in which the rules hold.
var Worlds = []World{
	{"a dead or silent node, one fault", dead},
	{"a kubelet that restarts, two faults", kubelet},
	{"two replicas that both serve, no fault", race},
}

var (
	dead    = []string{"REPLICAS=1", "FAULTS=1", "MOVES=1", "POWER", "LINK"}
	kubelet = []string{"REPLICAS=1", "FAULTS=2", "MOVES=1", "LINK", "KUBELET"}
	race    = []string{"REPLICAS=2", "FAULTS=0", "MOVES=1", "UNUSED"}
)

// Guard is a rule of the product that the model can do without.
type Guard struct {
	// Switch takes it out of the model.
	Switch string
	// Rule says what is taken out, Package and Function where the product has it.
	Rule, Package, Function string
	// World in which spin has to find a violation without it.
	World []string
	// HeldBy names what covers for it in that world, where it is not needed there;
	// empty: spin has to find a violation.
	HeldBy string
}

// Guards are taken out one by one.
var Guards = []Guard{
	{"NO_HOLDERS", "a publish looks for other holders", "fence", "JudgePublish", dead, ""},
	{"NO_UNPUBLISH_GUARD", "an unpublish is judged", "fence", "JudgeUnpublish", dead, ""},
	{"NO_BOOT", "evidence is bound to the boot ID", "fence", "Evidence.holds", dead, "a machine that booted has renewed its lease, to which evidence is bound as well"},
	{"NO_CONTEST", "a kubelet that restarted after the detach had begun, or whose unpublish was refused, is not believed", "fence", "contested", kubelet, ""},
	{"NO_RECORD", "the new holder is written down before its publish is forwarded", "proxy/guard", "publication.record", race, ""},
	{"NO_SWAP", "a ledger is written only if it is what was read", "fence/ledger", "Store.replace", race, ""},
	{"NO_ABORT", "a publish to a node that is leaving is answered ABORTED", "fence", "JudgePublish", race, ""},
	{"NO_REJUDGE", "after the unpublishes of a takeover it is judged again", "proxy/guard", "publication.round", race, ""},
	{"NO_SECOND_LOOK", "an agent's reading counts if the node was the same before and after it", "fence/fencer", "Fencer.observe", dead, "a living node vetoes: to look dead again it has to fall silent, a second fault"},
	{"NO_LISTED", "a fenced node counts until volumesAttached lacks the volume", "fence", "weigh", dead, ""},
}

// Unexplored are switches of the model without which the worlds above still hold
// the rules, or whose search was not made: nothing is claimed of them.
var Unexplored = []Guard{
	{"NO_TOKEN", "an entry is cut by its token alone", "fence/ledger", "Ledger.Cut", race, ""},
	{"NO_REREAD", "the lease is read again, last of all", "fence/survey", "gathering.facts", dead, ""},
	{"NO_WANTED", "a volume whose VolumeAttachment stands is not taken from a living node", "fence", "kept", dead, ""},
	{"NO_VERIFY", "the ledger is read again before a publish is answered", "proxy/guard", "publication.verify", race, ""},
}

// Assumption is something that the product relies on and cannot see to.
type Assumption struct {
	// Switch lets it fail.
	Switch string
	// Text says what is assumed.
	Text string
	// World in which spin finds what happens then.
	World []string
}

// Assumptions are let fail one by one: each has to be needed, or it should not
// stand here.
var Assumptions = []Assumption{
	{"MAY_POST_EARLY", "a kubelet that restarted does not say that it is Ready while its Node still has the volumesInUse of before", kubelet},
	{"MAY_RESTART_UNSEEN", "the restart of a kubelet shows in its Ready condition, or the out-of-service taint is on", kubelet},
}

package fitness

import (
	"context"
	"fmt"
)

// A question to the driver, which becomes a Ginkgo spec.
type question struct {
	name string
	asks string
	// means is what it means for a takeover when the answer is not yes.
	means string
	// ask finds the answer. The volume is published nowhere when it begins. An
	// error: it could not be asked.
	ask func(ctx context.Context, r *rig) (found, error)
}

// The questions that others refer to.
const (
	nameListed  = "published nodes"
	nameRevokes = "unpublish revokes"
	nameOffers  = "publishes"
)

// questions in the order in which they are asked: later ones use what earlier ones
// have learned, and the one that takes a machine away comes last.
var questions = []question{
	{nameOffers, "Does the driver have ControllerPublishVolume?",
		"Kubernetes does not ask the driver before a node uses a volume, so nothing can be refused, and there is nothing to guard (attachRequired: false).",
		askOffers},
	{nameListed, "Does the driver tell truthfully and soon where a volume is published?",
		"csi-fencepost asks the driver before it believes that nobody holds a volume. A name that is missing hides a holder; a name that stays keeps the volume from every other node.",
		askListed},
	{"unpublish, never published", "Does the unpublish of a volume that was never published answer OK or NOT_FOUND?",
		"The VolumeAttachment of a publish that never reached the driver cannot be taken away, and the volume stays where it is.",
		askNeverPublished},
	{"unpublish twice", "Does the second unpublish answer OK or NOT_FOUND?",
		"Unpublish is tried again when its answer was lost, and late and duplicate ones happen: the takeover would wait for ever.",
		askTwice},
	{"unpublish, unknown node", "Does the unpublish for a node that the driver does not know answer OK or NOT_FOUND, and leave the others alone?",
		"The node of a takeover is often gone from the cloud: its volumes would wait for ever.",
		askUnknownNode},
	{"publish again", "Is a publish to the node that has the volume idempotent?",
		"Publish is tried again when its answer was lost: the volume would never arrive.",
		askAgain},
	{"publish elsewhere", "Does a publish to a second node answer FAILED_PRECONDITION, and leave the volume where it is?",
		"Whoever calls past csi-fencepost, or while it only observes, takes the volume from a node that runs, or gives it to both.",
		askElsewhere},
	{"late unpublish", "Does a late unpublish of the old node leave the new one alone?",
		"It takes the disk from under the pod that has just been moved.",
		askLate},
	{"concurrent publishes", "Of two publishes at once to two nodes, does at most one succeed?",
		"Two replicas of a controller may both think that they lead: both nodes get the volume.",
		askConcurrent},
	{"operation pending", "Do calls that meet another one on the same volume answer OK or ABORTED, and leave what the last one says?",
		"external-attacher tries again at any error. But what is left behind has to be what was asked for last.",
		askPending},
	{"abandoned publish", "Is a publish whose caller gave up over when its unpublish has answered?",
		"The volume is attached to a node that nobody knows of, after the unpublish said that it is not.",
		askAbandoned},
	{nameRevokes, "Does unpublish take access from a client that does not let go?",
		"A node that is silent may still write: its volumes wait until a fence agent, the cloud or a person says that it is off.",
		askRevokes},
	{"call times", fmt.Sprintf("Does a takeover, an unpublish and a publish in one call, fit into the %s of external-attacher's recommended --timeout?", attacherTimeout),
		"The attacher gives up before the answer comes, and begins anew with longer and longer pauses.",
		askTimes},
	{"unpublish, gone node", "Does the unpublish from a node that is gone answer OK or NOT_FOUND?",
		"The takeover from a machine that was terminated would wait for ever.",
		askGone},
}

package simulate

import (
	"fmt"
	"strings"
)

// Event is one thing that happens in a schedule: a line of a script.
type Event struct {
	Verb string
	// A, B and C are its arguments; what they are depends on the verb.
	A, B, C string
}

func (e Event) String() string {
	text := e.Verb
	for _, arg := range []string{e.A, e.B, e.C} {
		if arg != "" {
			text += " " + arg
		}
	}
	return text
}

// Verbs. p is a process of csi-fencepost (r1, r2, ...), n a node's name, v a
// volume, call what a parked call is named: get:node/n1, patch:pv/v1,
// driver:publish/v1/n1, agent:off/n1, answer:publish/v1/n1.
const (
	// Calls that are under way.
	Reads = "reads" // p: its reads are served, until it waits for something else
	Serve = "serve" // p call: takes effect, and is answered
	Fail  = "fail"  // p call: no effect, and an error
	Lose  = "lose"  // p call: takes effect, and the answer is lost
	Drop  = "drop"  // p call: of a process that is gone: it never arrives
	Lie   = "lie"   // p call: the driver says OK and does nothing
	Late  = "late"  // p call: the driver fails, and attaches a moment later all the same
	Gone  = "gone"  // p call: the driver answers NOT_FOUND, for a machine that is off
	Land  = "land"  // v n: what Late promised
	Clock = "clock" // d: time passes; kubelets that can renew their leases
	// SetClock has the wall clock of a node, of the API server or of the controllers jump (skew.go).
	SetClock = "set-clock" // n|api-server|controllers d

	// Processes of csi-fencepost.
	Crash, Start         = "crash", "start"                // p
	CutAPI, JoinAPI      = "cut-api", "join-api"           // p: its way to the API server
	CutDriver, JoinDrive = "cut-driver", "join-driver"     // p
	CutAgent, JoinAgent  = "cut-agents", "join-agents"     // p
	Stall, Catch         = "stall-cache", "catch-up"       // p kind: its cache stops, goes on
	Lead                 = "lead"                          // p: its attacher and background work lead now
	Sight                = "sight"                         // p n: it looks at a Node that changed
	FenceOff             = "fence-off"                     // p n: it is told to fence the node
	StallNodes           = "nodes"                         // kinds of Stall
	StallVAs, StallLease = "volumeattachments", "leases"   //
	StallCSI, StallPVs   = "csinodes", "persistentvolumes" //

	// external-attacher beside a process.
	Publish   = "publish"    // p v n
	Republish = "republish"  // p v n: its comparison with ListVolumes
	Unpublish = "unpublish"  // p v n
	LateUnpub = "late-unpub" // p v n: a duplicate of one from before
	GiveUp    = "give-up"    // p v n: the deadline of its call
	StripVA   = "strip-va"   // v n: a person removes it, finalizer and all
	DeleteVA  = "delete-va"  // v n: a person deletes it

	// Attach-detach controller.
	Attach     = "attach"    // v n: makes a VolumeAttachment
	Confirmed  = "confirmed" // v n: it is attached: volumesAttached
	Unlist     = "unlist"    // v n: takes it off volumesAttached
	Detach     = "detach"    // v n: deletes the VolumeAttachment
	DetachFail = "detach-failed"
	RestartADC = "restart-adc"
	CutADC     = "cut-adc" // its way to the API server
	JoinADC    = "join-adc"

	// Pods: one for each volume.
	Move, EndPod, ForceDel = "delete-pod", "end-pod", "force-delete-pod" // v
	Schedule               = "schedule"                                  // v n

	// The wide world (wide.go): further pods of a volume's claim, on any node.
	AnotherPod  = "another-pod"        // v n: is bound to n, and waits there or runs
	DeleteOther = "delete-other"       // v n: the one on n
	EndOther    = "end-other"          // v n
	ForceOther  = "force-delete-other" // v n
	// Late of an unpublish there: the driver fails, and detaches later all the same.
	LandDetach = "land-detach" // v n: what that promised
	// Access has a person change the access modes of the PersistentVolume. What was published by
	// then stays as it was promised.
	Access = "access" // v one|many
	// Release has a person say that the node does not use the volume, which is not so only if
	// operators lie. Withdraw takes back what was said of the node, releases too.
	Release  = "release"  // v n
	Withdraw = "withdraw" // n
	// Heal ends all faults for a while: an honest operator says what is true of machines that are
	// off, and everything takes its course.
	Heal = "heal"
	// Mode rolls the sidecars out anew, to guard (enforce), to decide and forward (observe), or
	// beside an attacher that calls the driver itself (bypass); or they go on, and the attacher of a
	// pod without one leads (beside).
	Mode = "mode" // enforce|observe|bypass|beside
	// Backup saves what etcd holds. Restore has it be as it was then.
	Backup, Restore = "backup", "restore"
	// ListFails has the driver's list of published nodes fail, and SlowLists has each take 12 s,
	// until ListWorks.
	ListFails, SlowLists, ListWorks = "list-fails", "slow-lists", "list-works"
	// Away takes the machine down that all controllers and sidecars run on, and nobody acts but
	// kubelets and people, until Back.
	Away, Back = "away", "back"
	// SecondPV has a person make another PersistentVolume of the same disk, of which further pods
	// are from then on. DropPV deletes it, once nothing uses it.
	SecondPV = "second-pv" // v a-v|v-b one|many
	DropPV   = "drop-pv"   // v
	// OldTaint gives the node an out-of-service taint that somebody put on so long ago, for another
	// incident, while nobody of ours looked.
	OldTaint = "old-taint" // n 72h|20s
	// Borrow makes the kubelet of the node hostile from here on: it writes of its own node what
	// another's is: node-id, system, boot, lists (all that the other lists, besides its own) or none
	// (no system UUID, no boot ID, no lists at all).
	Borrow = "borrow" // n victim node-id|system|boot|lists|none

	// Moments for scripts alone (moments.go), of the wide world too.
	NewVolume  = "new-volume"  // v: it is deleted and made anew; nobody ever had that one
	KeepListed = "keep-listed" // v n: the controller computed its removal from volumesAttached from an old Node
	RenameID   = "rename-id"   // n: the driver has another node ID for the machine than before

	// Kubelet and machine of a node.
	Renew, Sync, Status   = "renew", "sync", "status"      // n
	Verify, Mount, Unmnt  = "verify", "mount", "unmount"   // v n
	Unpod                 = "unpublish-pod"                // v n: the first half of an unmount; the volume is staged still
	Outlive               = "outlive"                      // v n: the volume is unmounted from the machine, and not from the container
	RestartKubelet        = "restart-kubelet"              // n quick|slow
	Rebuild               = "rebuild"                      // n: a Sync after a restart that comes before its pods do
	Register              = "register"                     // n
	NotReady              = "not-ready"                    // n: the node controller
	PowerOff, PowerOn     = "power-off", "power-on"        // n
	Pause, Resume         = "pause", "resume"              // n
	CutNode, JoinNode     = "cut-node", "join-node"        // n: kubelet and API server
	Replace               = "replace"                      // n: a new machine, the old one goes on
	DeleteNode, CollectGC = "delete-node", "collect-lease" // n: what was the Node's is collected, in the wide world its CSINode too

	// Operators. What they say is true if the machine is off.
	TaintNode, Untaint = "taint", "untaint" // n
	ConfirmOff         = "confirm"          // n

	// Settle lets everything take its course without faults, for a while.
	Settle = "settle"
	// Expect checks what a story says: mounted v n, attached v n, refused v n
	// reason, quiet (nothing is under way).
	Expect = "expect"
)

// parseEvent reads a line of a script.
func parseEvent(line string) (Event, error) {
	words := strings.Fields(line)
	if len(words) == 0 || len(words) > 4 {
		return Event{}, fmt.Errorf("%q: want a verb and up to three arguments", line)
	}
	words = append(words, "", "", "")
	return Event{words[0], words[1], words[2], words[3]}, nil
}

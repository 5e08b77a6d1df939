package observe

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

// Order knows which came first, the deletion of a VolumeAttachment or a kubelet's
// word of its readiness, as this process has seen them, by its own monotonic clock.
// Their stamps are of several clocks, and say it only as long as nobody sets one.
//
// What it was not there to see it does not know, and then it gives a reason to refuse,
// never one to permit. It is safe for concurrent use. The zero Order is empty.
type Order struct {
	mu      sync.Mutex
	words   map[string]word     // by node
	deleted map[string]deletion // by VolumeAttachment
	boots   map[string]bootsOf  // by VolumeAttachment that is being deleted
}

// word is what a kubelet said of its readiness.
type word struct {
	uid         types.UID
	boot        string
	ready       corev1.ConditionStatus
	since, beat int64     // as stamped, to be compared for equality
	began       time.Time // seen to say this
	turned      time.Time // seen to say another thing; zero: not yet
	spoke       time.Time // seen to say anything
	heard       time.Time // seen to say something later, in that boot; zero: not yet
}

// bootsOf are boots in which a Node was read after its VolumeAttachment was read being deleted.
type bootsOf struct {
	uid    string    // of the VolumeAttachment
	node   types.UID // of the Node
	first  string    // the one that was read first
	lasted string    // the first one that is known to have lasted until the deletion; empty: none yet
}

type deletion struct {
	uid     types.UID
	seen    time.Time
	version string // resourceVersion of the VolumeAttachment, as it was seen first
}

// OrderSlack is how much later one of two watches may be than the other: after an
// outage each comes back by itself, up to 30 s apart (client-go's back-off).
const OrderSlack = 45 * time.Second

// BootTime is less than what a machine needs to boot, to start its kubelet and its driver, and to
// mount a volume.
const BootTime = 5 * time.Second

// bootSlack is how long a kubelet may run that neither writes its status nor renews its lease, and
// reads VolumeAttachments.
const bootSlack = time.Minute

// SyncTime is how long a kubelet may take, once it is Ready, until its Node lists
// what it has mounted, and not what the kubelet before it had. It leaves the old list
// until its volume manager has synced (K8s pkg/kubelet/nodestatus/setters.go,
// VolumesInUse), and then until it writes its status: every 10 s by default, every
// minute in the slowest profile that is shipped (OpenShift, LowUpdateSlowReaction). It
// counts only while the kubelet renews its lease (Tracker.Steady).
const SyncTime = 75 * time.Second

// Node takes a Node as the watch shows it.
func (o *Order) Node(n *corev1.Node) {
	ready := fence.ReadyCondition(n)
	o.mu.Lock()
	defer o.mu.Unlock()
	if ready == nil {
		return
	}
	now := word{uid: n.UID, boot: n.Status.NodeInfo.BootID, ready: ready.Status, since: ready.LastTransitionTime.Unix(), beat: ready.LastHeartbeatTime.Unix(), began: time.Now()}
	was, known := o.words[n.Name]
	if known && was.uid == n.UID {
		if was.boot == now.boot && was.ready == now.ready && was.since == now.since {
			now.began = was.began
		}
		now.turned, now.spoke = was.turned, was.spoke
		if was.boot == now.boot {
			now.heard = was.heard
		}
		if now.beat > was.beat { // not so in an etcd that was restored
			now.heard = time.Now()
		}
		if ready.Status != corev1.ConditionUnknown { // Unknown is the node controller's
			if was.since != now.since || was.ready != now.ready {
				now.turned = time.Now()
			}
			if was.beat != now.beat {
				now.spoke = time.Now()
			}
		}
	}
	if o.words == nil {
		o.words = map[string]word{}
	}
	o.words[n.Name] = now
}

// BootedSince takes note that the VolumeAttachment of that name and UID was read, being
// deleted, and after that this Node. It returns the boot in which that Node was first read so, if
// it is in another one: the Node is that machine's. Empty: it was not, or not by this process.
//
// since tells whether nothing can have been mounted in this boot before the deletion. Nothing
// can be after that: a kubelet does not mount by a VolumeAttachment that is being deleted (K8s csi_attacher.go,
// waitForVolumeAttachment). That the Node was read in the boot before does not show it. A kubelet of the
// next one may mount what it finds on its disk (K8s reconciler_common.go, mountAttachedVolumes) while it
// cannot write its status, as where a webhook refuses that. So the boot before has to have lasted: its
// kubelet was heard, less than BootTime before the deletion or later, by the API server's stamps (heard)
// and by what was watched, since the one may be of what another program wrote, and the other late; or
// its lease is silent still, bootSlack after the deletion was seen.
func (o *Order) BootedSince(attachment, uid string, node *corev1.Node, heard, silent bool) (before string, since bool) {
	boot := node.Status.NodeInfo.BootID
	if boot == "" {
		return "", false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.boots[attachment]
	if b.uid != uid || b.node != node.UID {
		b = bootsOf{uid: uid, node: node.UID, first: boot}
	}
	if d, w := o.deleted[attachment], o.words[node.Name]; b.lasted == "" && string(d.uid) == uid {
		heard = heard && w.uid == node.UID && w.boot == boot && w.heard.After(d.seen.Add(-BootTime))
		if heard || silent && time.Since(d.seen) >= bootSlack {
			b.lasted = boot
		}
	}
	if o.boots == nil {
		o.boots = map[string]bootsOf{}
	}
	o.boots[attachment] = b
	if b.first != boot {
		before = b.first
	}
	return before, before != "" && b.lasted != "" && b.lasted != boot
}

// DeletedVersion is the resourceVersion at which the VolumeAttachment of that name and UID was first
// seen being deleted: its own of then, whatever was written to it since. Empty: it was not.
func (o *Order) DeletedVersion(attachment, uid string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d := o.deleted[attachment]; string(d.uid) == uid {
		return d.version
	}
	return ""
}

// GoneNode takes a Node out.
func (o *Order) GoneNode(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.words, name)
}

// Attachment takes a VolumeAttachment as the watch shows it.
func (o *Order) Attachment(va *storagev1.VolumeAttachment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d, known := o.deleted[va.Name]
	switch {
	case va.DeletionTimestamp == nil:
		// Also where its deletion is undone, by an etcd that was restored.
		delete(o.deleted, va.Name)
		delete(o.boots, va.Name)
	case !known || d.uid != va.UID:
		if o.deleted == nil {
			o.deleted = map[string]deletion{}
		}
		o.deleted[va.Name] = deletion{uid: va.UID, seen: time.Now(), version: va.ResourceVersion}
	}
}

// GoneAttachment takes a VolumeAttachment out.
func (o *Order) GoneAttachment(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.deleted, name)
	delete(o.boots, name)
}

// KeepAttachments takes all out that are not there any more.
func (o *Order) KeepAttachments(there func(name, uid string) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, d := range o.deleted {
		if !there(name, string(d.uid)) {
			delete(o.deleted, name)
		}
	}
	for name, b := range o.boots {
		if !there(name, b.uid) {
			delete(o.boots, name)
		}
	}
}

// Synced tells whether the Node of that UID was watched for SyncTime saying that it is
// Ready since then (RFC 3339), in that boot, so that what it lists in use is what this kubelet uses:
// a machine that boots fast may never have been seen not to be Ready.
// False: it was not, or not while this process watched.
func (o *Order) Synced(node, uid, bootID, readySince string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	w, known := o.words[node]
	return known && string(w.uid) == uid && w.boot == bootID && w.ready == corev1.ConditionTrue && time.Unix(w.since, 0).UTC().Format(time.RFC3339) == readySince &&
		time.Since(w.began) >= SyncTime
}

// TurnedSince tells whether the node's kubelet was seen to change its word of its
// readiness, as it does when it restarts, after the VolumeAttachment was seen to be
// deleted; of one whose readiness is Unknown, which hides when that was, whether it
// was seen to say anything. False: it was not, or not while this process watched.
func (o *Order) TurnedSince(node, attachment string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	w, d := o.words[node], o.deleted[attachment]
	at := w.turned
	if w.ready == corev1.ConditionUnknown {
		at = w.spoke
	}
	return !at.IsZero() && !d.seen.IsZero() && at.After(d.seen.Add(OrderSlack))
}

package observe

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// epoch is where every stamp of these tests is from: they say nothing.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func saying(uid string, ready corev1.ConditionStatus, since, beat time.Duration) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: types.UID(uid)}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDiskPressure}, {Type: corev1.NodeReady, Status: ready,
		LastTransitionTime: metav1.NewTime(epoch.Add(since)), LastHeartbeatTime: metav1.NewTime(epoch.Add(beat))}}
	return n
}

func deletedVA(uid string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va", UID: types.UID(uid), DeletionTimestamp: &metav1.Time{Time: epoch}}}
}

func TestOrderIsOfWhatWasSeenAndOfNoStamp(t *testing.T) {
	const yes, no, unknown = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	ready := func(o *Order) { o.Node(saying("u", yes, 0, 0)) }
	gone := func(o *Order) { o.Attachment(deletedVA("a")) }
	say := func(ready corev1.ConditionStatus, since, beat time.Duration) func(*Order) {
		return func(o *Order) { o.Node(saying("u", ready, since, beat)) }
	}
	for name, tt := range map[string]struct {
		events []func(*Order)
		want   bool
	}{
		"nothing is known":                              {nil, false},
		"deleted, and nothing since":                    {[]func(*Order){ready, gone}, false},
		"deleted, then a heartbeat":                     {[]func(*Order){ready, gone, say(yes, 0, time.Minute)}, false},
		"deleted, then Ready anew":                      {[]func(*Order){ready, gone, say(yes, time.Minute, time.Minute)}, true},
		"deleted, then Ready anew, and a heartbeat":     {[]func(*Order){ready, gone, say(yes, time.Minute, time.Minute), say(yes, time.Minute, time.Hour)}, true},
		"stamped long before":                           {[]func(*Order){ready, gone, say(yes, -time.Hour, -time.Hour)}, true},
		"Ready anew, then deleted":                      {[]func(*Order){ready, say(yes, time.Hour, time.Hour), gone}, false},
		"deleted, then False":                           {[]func(*Order){ready, gone, say(no, time.Minute, time.Minute)}, true},
		"deleted, then False with the stamp of before":  {[]func(*Order){ready, gone, say(no, 0, time.Minute)}, true},
		"deleted, then silent":                          {[]func(*Order){ready, gone, say(unknown, time.Minute, 0)}, false},
		"deleted, then silent, and back":                {[]func(*Order){ready, gone, say(unknown, time.Minute, 0), say(yes, time.Hour, time.Hour)}, true},
		"deleted, then a heartbeat, then silent":        {[]func(*Order){ready, gone, say(yes, 0, time.Minute), say(unknown, time.Hour, time.Minute)}, true},
		"a heartbeat, then deleted, then silent":        {[]func(*Order){ready, say(yes, 0, time.Minute), gone, say(unknown, time.Hour, time.Minute)}, false},
		"first seen after the deletion":                 {[]func(*Order){gone, say(yes, time.Hour, time.Hour)}, false},
		"first seen silent, deleted already, and back":  {[]func(*Order){func(o *Order) { say(unknown, 0, 0)(o); gone(o) }, say(yes, time.Hour, time.Hour)}, true},
		"registered anew":                               {[]func(*Order){ready, gone, func(o *Order) { o.Node(saying("u2", yes, time.Hour, time.Hour)) }}, false},
		"its Node is gone and there again":              {[]func(*Order){ready, gone, func(o *Order) { o.GoneNode("n") }, say(yes, time.Hour, time.Hour)}, false},
		"another VolumeAttachment of the name":          {[]func(*Order){ready, gone, say(yes, time.Hour, time.Hour), func(o *Order) { o.Attachment(deletedVA("a2")) }}, false},
		"seen to be deleted once more":                  {[]func(*Order){ready, gone, say(yes, time.Hour, time.Hour), gone}, true},
		"the VolumeAttachment is gone":                  {[]func(*Order){ready, gone, say(yes, time.Hour, time.Hour), func(o *Order) { o.GoneAttachment("va") }}, false},
		"the VolumeAttachment went while nobody looked": {[]func(*Order){ready, gone, say(yes, time.Hour, time.Hour), func(o *Order) { o.KeepAttachments(func(string, string) bool { return false }) }}, false},
		"it is there": {[]func(*Order){ready, gone, say(yes, time.Hour, time.Hour), func(o *Order) {
			o.KeepAttachments(func(name, uid string) bool { return name == "va" && uid == "a" })
		}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &Order{}
				for _, event := range tt.events {
					event(o)
					time.Sleep(OrderSlack + time.Second)
				}
				if got := o.TurnedSince("n", "va"); got != tt.want {
					t.Errorf("turned since: %v", got)
				}
				if o.TurnedSince("n", "another") || o.TurnedSince("another", "va") {
					t.Error("it says so of others")
				}
			})
		})
	}
}

// Two watches do not show two changes in the order in which they were made.
func TestOrderLeavesTwoWatchesSomeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, apart := range []time.Duration{OrderSlack, OrderSlack + time.Millisecond} {
			o := &Order{}
			o.Node(saying("u", corev1.ConditionTrue, 0, 0))
			o.Attachment(deletedVA("a"))
			time.Sleep(apart)
			o.Node(saying("u", corev1.ConditionTrue, time.Minute, time.Minute))
			if got := o.TurnedSince("n", "va"); got != (apart > OrderSlack) {
				t.Errorf("%v later: %v", apart, got)
			}
		}
	})
}

// What a listing shows counts like what changes after it: a process that starts when
// the volume is being detached knows what comes later.
func TestOrderIsToldOfListingsAndChanges(t *testing.T) {
	const silent, yes = corev1.ConditionUnknown, corev1.ConditionTrue
	before, back, deleted := saying("u", silent, 0, 0), saying("u", yes, time.Minute, time.Minute), deletedVA("a")
	deleted.Spec.Attacher = anyDriver
	others := deleted.DeepCopy()
	others.Spec.Attacher = other
	list := func(t *testing.T, r *rig, kind int, objects ...runtime.Object) {
		f := r.watch.feeds[kind]
		f.streams = false
		f.api.list = func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) { return page(objects, o, false) }
		if _, err := f.list(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		_ = f.Replace(nil, "")
	}
	listed := func(t *testing.T, r *rig) { list(t, r, nodes, before); list(t, r, attachments, deleted) }
	for name, tt := range map[string]struct {
		first, then func(*testing.T, *rig)
		want        bool
		two         bool // the other driver's volumes are watched, too
	}{
		"it is the other driver's, which is watched, too": {first: func(t *testing.T, r *rig) {
			list(t, r, nodes, before)
			list(t, r, attachments, others)
		}, then: func(t *testing.T, r *rig) { _ = r.watch.feeds[nodes].Update(back); list(t, r, attachments, others) }, want: true, two: true},
		"both are listed": {listed,
			func(_ *testing.T, r *rig) { _ = r.watch.feeds[nodes].Update(back) }, true, false},
		"both are changes": {func(_ *testing.T, r *rig) {
			_ = r.watch.feeds[nodes].Add(before)
			_ = r.watch.feeds[attachments].Update(deleted)
		}, func(_ *testing.T, r *rig) { _ = r.watch.feeds[nodes].Update(back) }, true, false},
		"it turned while nobody watched, and is listed then": {listed,
			func(t *testing.T, r *rig) { list(t, r, nodes, back) }, true, false},
		"the VolumeAttachment is another driver's": {func(t *testing.T, r *rig) { list(t, r, nodes, before); list(t, r, attachments, others) },
			func(_ *testing.T, r *rig) { _ = r.watch.feeds[nodes].Update(back) }, false, false},
		"the VolumeAttachment goes": {listed,
			func(_ *testing.T, r *rig) {
				_ = r.watch.feeds[nodes].Update(back)
				_ = r.watch.feeds[attachments].Delete(deleted)
			}, false, false},
		"the VolumeAttachment is not in the next listing": {listed,
			func(t *testing.T, r *rig) { _ = r.watch.feeds[nodes].Update(back); list(t, r, attachments) }, false, false},
		"the Node goes, and is there again": {listed,
			func(_ *testing.T, r *rig) {
				_ = r.watch.feeds[nodes].Delete(before)
				_ = r.watch.feeds[nodes].Add(back)
			}, false, false},
		"the Node is not in the next listing, and is there again": {listed,
			func(t *testing.T, r *rig) { list(t, r, nodes); _ = r.watch.feeds[nodes].Add(back) }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, anyDriver, 1, tt.two)
			synctest.Test(t, func(t *testing.T) {
				tt.first(t, r)
				time.Sleep(OrderSlack + time.Second)
				tt.then(t, r)
				if got := r.index.TurnedSince("n", "va"); got != tt.want {
					t.Errorf("turned since: %v", got)
				}
			})
		})
	}
}

func TestAKubeletHasSyncedOnceItWasWatchedForLongSayingTheSame(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	since := func(d time.Duration) string { return epoch.Add(d).Format(time.RFC3339) }
	node := func(uid string, ready corev1.ConditionStatus, since, beat time.Duration) func(*Order) {
		return func(o *Order) { o.Node(saying(uid, ready, since, beat)) }
	}
	booted := func(boot string) func(*Order) { return func(o *Order) { o.Node(inBoot("u", boot, 0)) } }
	for name, tt := range map[string]struct {
		first, then      func(*Order) // the second half of SyncTime later
		uid, boot, since string
		want             bool
	}{
		"with a heartbeat since":         {node("u", yes, 0, 0), node("u", yes, 0, time.Hour), "u", "", since(0), true},
		"of another Node":                {node("u", yes, 0, 0), node("u", yes, 0, 0), "u2", "", since(0), false},
		"of another time":                {node("u", yes, 0, 0), node("u", yes, 0, 0), "u", "", since(time.Second), false},
		"that is not Ready":              {node("u", no, 0, 0), node("u", no, 0, 0), "u", "", since(0), false},
		"Ready anew":                     {node("u", yes, 0, 0), node("u", yes, time.Second, 0), "u", "", since(time.Second), false},
		"Ready with the stamp of False":  {node("u", no, 0, 0), node("u", yes, 0, 0), "u", "", since(0), false},
		"registered anew":                {node("u", yes, 0, 0), node("u2", yes, 0, 0), "u2", "", since(0), false},
		"gone and there again":           {node("u", yes, 0, 0), func(o *Order) { o.GoneNode("n"); o.Node(saying("u", yes, 0, 0)) }, "u", "", since(0), false},
		"in one boot":                    {booted("b1"), booted("b1"), "u", "b1", since(0), true},
		"booted, and Ready all the time": {booted("b1"), booted("b2"), "u", "b2", since(0), false},
		"of another boot":                {booted("b1"), booted("b1"), "u", "b2", since(0), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &Order{}
				if o.Synced("n", tt.uid, tt.boot, tt.since) {
					t.Error("of a node that nobody has seen")
				}
				tt.first(o)
				time.Sleep(SyncTime / 2)
				tt.then(o)
				time.Sleep(SyncTime/2 - time.Millisecond)
				if o.Synced("n", tt.uid, tt.boot, tt.since) {
					t.Error("too soon")
				}
				time.Sleep(time.Millisecond)
				if got := o.Synced("n", tt.uid, tt.boot, tt.since); got != tt.want {
					t.Errorf("%v, want %v", got, tt.want)
				}
			})
		})
	}
}

// inBoot is what a Node of that UID says in a boot, and when its kubelet wrote its heartbeat.
func inBoot(uid, boot string, beat time.Duration) *corev1.Node {
	n := saying(uid, corev1.ConditionTrue, 0, beat)
	n.Status.NodeInfo.BootID = boot
	return n
}

// A Node may say the boot before while a kubelet of the next one mounts what it finds on its disk.
func TestABootBeganSinceTheDeletionOnceNoKubeletCanHaveMountedInItBefore(t *testing.T) {
	const sec = time.Second
	word := func(boot string, beat time.Duration) func(*Order) {
		return func(o *Order) { o.Node(inBoot("s", boot, beat)) }
	}
	deleted := func(o *Order) { o.Attachment(deletedVA("a")) }
	wait := func(d time.Duration) func(*Order) { return func(*Order) { time.Sleep(d) } }
	stamped := func(o *Order) { o.BootedSince("va", "a", inBoot("s", "b1", 0), true, false) }
	silent := func(o *Order) { o.BootedSince("va", "a", inBoot("s", "b1", 0), false, true) }
	unproven := func(o *Order) { o.BootedSince("va", "a", inBoot("s", "b1", 0), false, false) }
	for name, tt := range map[string]struct {
		does []func(*Order)
		want bool
	}{
		"heard since":                            {[]func(*Order){word("b1", 1*sec), deleted, wait(time.Hour), word("b1", 2*sec), stamped}, true},
		"heard just before":                      {[]func(*Order){word("b1", 1*sec), word("b1", 2*sec), wait(BootTime - 1), deleted, wait(time.Hour), stamped}, true},
		"heard before, long enough for a boot":   {[]func(*Order){word("b1", 1*sec), word("b1", 2*sec), wait(BootTime), deleted, stamped}, false},
		"heard, and the stamps do not say so":    {[]func(*Order){word("b1", 1*sec), deleted, word("b1", 2*sec), unproven}, false},
		"only the stamps say so":                 {[]func(*Order){word("b1", 1*sec), deleted, stamped}, false},
		"of a Node that nobody watched":          {[]func(*Order){deleted, stamped}, false},
		"of a Node of another UID":               {[]func(*Order){word("b1", 1*sec), deleted, word("b1", 2*sec), func(o *Order) { o.Node(inBoot("s2", "b1", 3*sec)); o.Node(inBoot("s2", "b1", 4*sec)) }, stamped}, false},
		"heard in another boot":                  {[]func(*Order){word("b0", 1*sec), deleted, word("b0", 2*sec), stamped}, false},
		"heard in one that is over":              {[]func(*Order){word("b0", 1*sec), deleted, word("b0", 2*sec), word("b1", 2*sec), stamped}, false},
		"heard first in this one":                {[]func(*Order){word("b0", 1*sec), deleted, word("b1", 2*sec), stamped}, true},
		"put back, as etcd is":                   {[]func(*Order){word("b1", 2*sec), deleted, word("b1", 1*sec), stamped}, false},
		"nobody saw the deletion":                {[]func(*Order){word("b1", 1*sec), word("b1", 2*sec), stamped}, false},
		"the deletion is another one's":          {[]func(*Order){word("b1", 1*sec), func(o *Order) { o.Attachment(deletedVA("a0")) }, word("b1", 2*sec), stamped}, false},
		"silent":                                 {[]func(*Order){deleted, silent}, false},
		"silent for a while":                     {[]func(*Order){deleted, wait(time.Minute - 1), silent}, false},
		"silent for long":                        {[]func(*Order){deleted, wait(time.Minute), silent}, true},
		"silent, and nobody saw the deletion":    {[]func(*Order){wait(time.Hour), silent}, false},
		"neither":                                {[]func(*Order){deleted, wait(time.Hour), unproven}, false},
		"neither at first, and then heard":       {[]func(*Order){word("b1", 1*sec), deleted, wait(time.Hour), unproven, word("b1", 2*sec), stamped}, true},
		"neither, and heard in the boot of then": {[]func(*Order){deleted, unproven, word("b2", 1*sec), word("b2", 2*sec)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &Order{}
				for _, do := range tt.does {
					do(o)
				}
				if before, since := o.BootedSince("va", "a", inBoot("s", "b2", time.Hour), true, true); before != "b1" || since != tt.want {
					t.Errorf("after %q, since the deletion: %t, want %t", before, since, tt.want)
				}
			})
		})
	}
}

// lasted has a Node of that UID read in a boot in which it is heard.
func lasted(o *Order, attachment, node, boot string) {
	va := deletedVA("a")
	va.Name = attachment
	o.Attachment(va)
	o.Node(inBoot(node, boot, time.Second))
	o.Node(inBoot(node, boot, 2*time.Second))
	o.BootedSince(attachment, "a", inBoot(node, boot, 2*time.Second), true, false)
}

// What is learned late counts for the boot of then; and a boot that was read before another one, as by
// who read it at the same time, or in an etcd that was restored, did not begin after that.
func TestABootThatLastedIsToldFromOneThatWasReadFirst(t *testing.T) {
	o := &Order{}
	o.BootedSince("va", "a", inBoot("s", "b1", 0), false, false)
	lasted(o, "va", "s", "b2")
	for _, read := range []struct {
		boot, before string
		since        bool
	}{{"b2", "b1", false}, {"b3", "b1", true}, {"b2", "b1", false}, {"b1", "", false}} {
		if before, since := o.BootedSince("va", "a", inBoot("s", read.boot, 0), true, false); before != read.before || since != read.since {
			t.Errorf("%+v: after %q, since the deletion: %t", read, before, since)
		}
	}
}

// An etcd that was restored may have a VolumeAttachment as it was before its deletion.
func TestADeletionThatIsUndoneIsForgotten(t *testing.T) {
	o, va := &Order{}, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va", UID: "a", ResourceVersion: "7", DeletionTimestamp: &metav1.Time{}}}
	o.Attachment(va)
	lasted(o, "va", "s", "b1")
	later := va.DeepCopy()
	later.ResourceVersion = "9" // external-attacher says that its call failed
	o.Attachment(later)
	if got, other := o.DeletedVersion("va", "a"), o.DeletedVersion("va", "b"); got != "7" || other != "" {
		t.Errorf("being deleted at %q, and another one at %q", got, other)
	}
	undone := va.DeepCopy()
	undone.DeletionTimestamp = nil
	o.Attachment(undone)
	if got, since := o.BootedSince("va", "a", inBoot("s", "b2", 0), true, false); got != "" || since || o.DeletedVersion("va", "a") != "" {
		t.Errorf("read in boot %q, deleted at %q", got, o.DeletedVersion("va", "a"))
	}
}

func TestAVolumeAttachmentIsKnownToHaveBeenDeletedBeforeTheBoot(t *testing.T) {
	there := func(is bool) func(string, string) bool { return func(string, string) bool { return is } }
	for name, tt := range map[string]struct {
		before    func(o *Order)
		uid, boot string
		want      string
	}{
		"never read":             {func(*Order) {}, "a", "b2", ""},
		"read in that boot":      {func(o *Order) { lasted(o, "va", "s", "b2") }, "a", "b2", ""},
		"read in the one before": {func(o *Order) { lasted(o, "va", "s", "b1") }, "a", "b2", "b1"},
		"read in both": {func(o *Order) {
			lasted(o, "va", "s", "b1")
			lasted(o, "va", "s", "b2")
		}, "a", "b2", "b1"},
		"read in no known boot": {func(o *Order) { lasted(o, "va", "s", "") }, "a", "b2", ""},
		"in no known boot now":  {func(o *Order) { lasted(o, "va", "s", "b1") }, "a", "", ""},
		"another one":           {func(o *Order) { lasted(o, "va", "s", "b1") }, "a2", "b2", ""},
		"of another name":       {func(o *Order) { lasted(o, "other", "s", "b1") }, "a", "b2", ""},
		"of another Node":       {func(o *Order) { lasted(o, "va", "s2", "b1") }, "a", "b2", ""},
		"of another one between": {func(o *Order) {
			lasted(o, "va", "s", "b1")
			lasted(o, "va", "s2", "b0")
		}, "a", "b2", ""},
		"gone since":   {func(o *Order) { lasted(o, "va", "s", "b1"); o.GoneAttachment("va") }, "a", "b2", ""},
		"missed to go": {func(o *Order) { lasted(o, "va", "s", "b1"); o.KeepAttachments(there(false)) }, "a", "b2", ""},
		"kept":         {func(o *Order) { lasted(o, "va", "s", "b1"); o.KeepAttachments(there(true)) }, "a", "b2", "b1"},
	} {
		o := &Order{}
		tt.before(o)
		if got, since := o.BootedSince("va", tt.uid, inBoot("s", tt.boot, 0), true, false); got != tt.want || since != (tt.want != "") {
			t.Errorf("%s: %v, since the deletion: %t, want %v", name, got, since, tt.want)
		}
	}
}

package failover

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/observe"
)

// polledWorld is a world whose nodes are polled every two seconds, renew their leases every second
// and are silent after 15 s. Readings and requests take their time. A pod of n1 uses a volume, and
// another one waits for it.
func polledWorld(t *testing.T) *world {
	w := newWorld(t)
	w.suspectAfter, w.delay = 15*time.Second, 3*time.Millisecond
	w.options.OffFor = 5 * time.Second
	w.options.FenceAfter = 0
	w.options.AskEvery = 3 * time.Second
	w.fencer.poll, w.fencer.checked, w.fencer.only, w.fencer.takes = 2*time.Second, true, w.n1, 100*time.Millisecond
	w.renews(time.Second)
	w.volume("a", w.driver, nil)
	w.pod("a", w.n1, nil, "a")
	return w
}

// renews has all leases be renewed so often, and say so.
func (w *world) renews(every time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.every = every
	for n := range w.alive {
		patch := fmt.Sprintf(`{"spec":{"leaseDurationSeconds":%d}}`, 4*every/time.Second)
		if _, err := w.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(w.t.Context(), n, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// settle lets the leases be watched, and every node be polled.
func settle() { time.Sleep(7 * time.Second) }

// goesOff cuts the power of n1, and says when.
func (w *world) goesOff() time.Time {
	w.lives(w.n1, false)
	w.fencer.reads(agent.Off)
	return time.Now()
}

// kubelets answer connections: that of n1 by err, those of n2 and n4 by second and third.
type kubelets struct {
	mu                 sync.Mutex
	err, second, third error
	dials              int
}

// errSecond is the answer to the second packet that asks for a connection.
var errSecond = errors.New("the first packet was lost")

func (k *kubelets) dial(ctx context.Context, address string) error {
	k.mu.Lock()
	k.dials++
	err := k.err
	switch address {
	case "10.0.0.2:10250":
		err = k.second
	case "10.0.0.4:10250":
		err = k.third
	}
	k.mu.Unlock()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		<-ctx.Done() // nobody answers
	case errors.Is(err, errSecond):
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(1100 * time.Millisecond):
			return nil
		}
	}
	return err
}

func (k *kubelets) say(err error) { k.mu.Lock(); defer k.mu.Unlock(); k.err = err }

// ported is a polledWorld whose leases are renewed as rarely as kubelets do, so that what falls
// silent first is the kubelet's port. n2 and n4 hold a volume, too. Its controller runs.
func ported(t *testing.T) (*world, *kubelets) {
	w, k := polledWorld(t), &kubelets{}
	n4 := w.ns + "-n4"
	w.addNode(n4)
	t.Cleanup(func() {
		w.lives(n4, false)
		_ = w.api.CoreV1().Nodes().Delete(context.Background(), n4, metav1.DeleteOptions{})
		_ = w.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(context.Background(), n4, metav1.DeleteOptions{})
	})
	w.renews(10 * time.Second)
	for volume, node := range map[string]string{"b": w.ns + "-n2", "c": n4} {
		w.volume(volume, w.driver, nil)
		w.attach(volume, node)
	}
	for i, n := range []string{w.n1, w.ns + "-n2", w.ns + "-n3", n4} {
		w.change(n, func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.0.%d", i+1)}}
			n.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
		})
	}
	w.dial = k.dial
	w.leads = w.start()
	time.Sleep(41 * time.Second)
	return w, k
}

// attach has a volume be another node's.
func (w *world) attach(volume, node string) {
	w.t.Helper()
	w.detach(volume)
	pv := w.ns + "-" + volume
	must(w.t, w.api.StorageV1().VolumeAttachments().Create, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: csi.AttachmentName("h-"+volume, w.driver, node)},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: w.driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}})
}

// off cuts the power with the port, right after a renewal.
func (w *world) offWith(k *kubelets, err error) time.Time {
	k.say(err)
	return w.goesOff()
}

func TestAKubeletWhosePortFallsSilentProvesWithTwoReadings(t *testing.T) {
	play(t, func(t *testing.T) {
		w, k := ported(t)
		off := w.offWith(k, os.ErrDeadlineExceeded)
		w.eventually("it is proven off", w.proven)
		if took := time.Since(off); took < startsFor || took > 8*time.Second {
			t.Errorf("it was proven off after %s", took)
		}
		if w.fencer.missed != "its kubelet, which answered connections a moment ago, gives no answer" {
			t.Errorf("missing: %s", w.fencer.missed)
		}
		w.eventually("its pods are gone", func() bool { return !w.has("a") })
		if took := time.Since(off); took < 5*time.Second || took > 10*time.Second {
			t.Errorf("its pods were deleted after %s", took)
		}
	})
}

func TestWhatAKubeletsPortSaysThatIsNoProof(t *testing.T) {
	for name, change := range map[string]func(w *world, k *kubelets){
		"it answers":                          func(w *world, k *kubelets) { w.offWith(k, nil) },
		"it refuses, which is an answer":      func(w *world, k *kubelets) { w.offWith(k, syscall.ECONNREFUSED) },
		"it resets, which is an answer":       func(w *world, k *kubelets) { w.offWith(k, syscall.ECONNRESET) },
		"its firewall forbids it":             func(w *world, k *kubelets) { w.offWith(k, syscall.EHOSTUNREACH) },
		"it answers the second packet":        func(w *world, k *kubelets) { w.offWith(k, errSecond) },
		"this process has no way there":       func(w *world, k *kubelets) { w.offWith(k, syscall.ENETUNREACH) },
		"it did not answer for half a minute": func(w *world, k *kubelets) { k.say(os.ErrDeadlineExceeded); time.Sleep(50 * time.Second); w.goesOff() },
		"no other kubelet answers either": func(w *world, k *kubelets) {
			k.mu.Lock()
			k.second, k.third = os.ErrDeadlineExceeded, os.ErrDeadlineExceeded
			k.mu.Unlock()
			w.offWith(k, os.ErrDeadlineExceeded)
		},
		"one other answers, which may be on this machine": func(w *world, k *kubelets) {
			k.mu.Lock()
			k.third = os.ErrDeadlineExceeded
			k.mu.Unlock()
			w.offWith(k, os.ErrDeadlineExceeded)
		},
		"whose device it is was not checked": func(w *world, k *kubelets) { w.fencer.checked = false; w.offWith(k, os.ErrDeadlineExceeded) },
		"another address than the one that answered": func(w *world, k *kubelets) {
			w.change(w.n1, func(n *corev1.Node) { n.Status.Addresses[0].Address = "10.0.0.9" })
			w.offWith(k, os.ErrDeadlineExceeded)
		},
		"it answers again": func(w *world, k *kubelets) {
			w.offWith(k, os.ErrDeadlineExceeded)
			time.Sleep(3 * time.Second)
			k.say(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T) {
				w, k := ported(t)
				change(w, k)
				w.never("it was proven off", 8*time.Second, w.proven)
			})
		})
	}
}

// Each connection to a node whose power was seen to go has others' kubelets asked as well.
func TestAKubeletOfANodeThatReadsOffIsNotAskedWithoutEnd(t *testing.T) {
	play(t, func(t *testing.T) {
		w, k := ported(t)
		dials := func(during time.Duration) int {
			k.mu.Lock()
			began := k.dials
			k.mu.Unlock()
			time.Sleep(during)
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.dials - began
		}
		w.offWith(k, syscall.ECONNREFUSED)
		if n := dials(9 * time.Second); n < 9 || n > 30 {
			t.Errorf("%d connections in 9 s", n)
		}
		time.Sleep(20 * time.Second)
		if n := dials(30 * time.Second); n > 9 {
			t.Errorf("%d connections in 30 s once its lease was silent", n)
		}
	})
}

// asked: the agents were, by a worker.
func (w *world) asked() bool {
	w.fencer.mu.Lock()
	defer w.fencer.mu.Unlock()
	return w.fencer.asks > 0
}

func (w *world) proven() bool {
	w.fencer.mu.Lock()
	defer w.fencer.mu.Unlock()
	f, ok := w.fencer.records[w.n1]
	return ok && f.Void == "" && f.Missed != ""
}

func TestAPolledNodeIsProvenOffAndMovedBeforeItsLeaseIsSilent(t *testing.T) {
	play(t, func(t *testing.T) {
		w := polledWorld(t)
		w.options.OffFor = 9 * time.Second // longer than the proof takes
		w.start()
		settle()
		off := w.goesOff()
		w.never("the agents were asked in their turn before that could prove anything", askFrom-50*time.Millisecond, w.asked)
		w.eventually("it is proven off", w.proven)
		if took := time.Since(off); took < startsFor || took > 8*time.Second {
			t.Errorf("it was proven off after %s", took)
		}
		if !w.has("a") || w.tainted() != "" {
			t.Error("its pods were touched before it was off for offFor")
		}
		w.eventually("its pods are gone", func() bool { return !w.has("a") })
		if took := time.Since(off); took < 9*time.Second || took > 14*time.Second {
			t.Errorf("its pods were deleted after %s", took)
		}
		w.eventually("Kubernetes is left to delete the other pods", func() bool { return w.tainted() == ourTaint })
		w.never("a fence that is right was voided", 20*time.Second, func() bool { return w.fencer.did("void " + w.n1) })
	})
}

func TestWithoutPollNothingIsDoneBeforeTheLeaseIsSilent(t *testing.T) {
	play(t, func(t *testing.T) {
		w := polledWorld(t)
		w.fencer.poll = 0
		c := w.start()
		settle()
		w.goesOff()
		w.never("it was asked or touched", 14*time.Second, func() bool {
			c.Prompt(w.n1) // whoever has a reason
			return w.fencer.polls+len(w.fencer.done()) > 0 || !w.has("a") || w.tainted() != "" || w.proven()
		})
		w.eventually("its pods are gone", func() bool { return !w.has("a") })
	})
}

// A BMC that starts anew reads off for some seconds, and its machine goes on.
func TestADeviceThatReadsOffForThreeSecondsHasNobodyCut(t *testing.T) {
	play(t, func(t *testing.T) {
		w := polledWorld(t)
		w.start()
		settle()
		for range 5 {
			w.fencer.reads(agent.Off)
			w.never("a node that renews its lease was proven off", 3*time.Second, func() bool {
				return w.proven() || !w.has("a") || w.tainted() != ""
			})
			w.fencer.reads(agent.On)
			time.Sleep(4300 * time.Millisecond)
		}
	})
}

// It takes the network port with it that it shares, so that the lease is late.
func TestADeviceThatTakesTheNetworkDownHasNobodyCut(t *testing.T) {
	play(t, func(t *testing.T) {
		w := polledWorld(t)
		w.start()
		settle()
		for i := range 8 {
			w.goesOff()
			w.never("a machine that runs was proven off", 3*time.Second, func() bool { return w.proven() || !w.has("a") })
			w.lives(w.n1, true)
			w.fencer.reads(agent.On)
			time.Sleep(4*time.Second + time.Duration(i)*250*time.Millisecond)
		}
	})
}

// As after a longer start, in which it answered nobody: nobody saw the power go.
func TestOffThatFollowsNoReadingOfOnProvesNothingEarly(t *testing.T) {
	for name, before := range map[string]agent.State{"it has read off since the lead began": agent.Off, "it could not be read": agent.Unclear} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T) {
				w := polledWorld(t)
				if before == agent.Off {
					w.fencer.reads(agent.Off)
				}
				w.start()
				settle()
				if before == agent.Unclear {
					w.fencer.reads(agent.Unclear)
					time.Sleep(3 * time.Second)
				}
				w.goesOff()
				w.never("it was proven off", 13*time.Second, func() bool { return w.proven() || !w.has("a") || w.tainted() != "" })
				w.eventually("its pods are gone", func() bool { return !w.has("a") })
			})
		})
	}
}

// A renewal while a node's agents are asked is what contradicts them.
func TestOneRenewalAfterTheFirstOffIsEnoughWhenEverItComes(t *testing.T) {
	play(t, func(t *testing.T) {
		for i := range 6 {
			w := polledWorld(t)
			c := w.start()
			settle()
			w.fencer.reads(agent.Off)
			w.eventually("it falls", func() bool { r, _ := c.Power(w.n1); return r.State == agent.Off })
			time.Sleep(time.Second + time.Duration(i)*170*time.Millisecond)
			w.lives(w.n1, false) // as a kubelet that starts again and again, and then renews more rarely
			w.never("it was proven off", 12*time.Second, func() bool { return w.proven() || !w.has("a") || w.tainted() != "" })
			w.stop()
			w.stop = nil
		}
	})
}

func TestADeviceThatLiesIsNotBelievedAndNotAskedWithoutEnd(t *testing.T) {
	play(t, func(t *testing.T) {
		w := polledWorld(t)
		w.start()
		settle()
		w.fencer.reads(agent.Off) // as one with a wrong address
		w.never("a living node was touched", 40*time.Second, func() bool { return w.proven() || !w.has("a") || w.tainted() != "" })
		w.fencer.mu.Lock()
		asks := w.fencer.asks
		w.fencer.mu.Unlock()
		if asks > 2 {
			t.Errorf("its agents were asked %d times besides the polls, in 40 s in which it renewed its lease", asks)
		}
		// Once it has read on, off says something again.
		w.fencer.reads(agent.On)
		settle()
		w.goesOff()
		w.eventually("it is proven off", w.proven)
	})
}

// The pods of a machine that boots are there again before others could take their place.
func TestAQuickRebootsPodsAreNotTouched(t *testing.T) {
	play(t, func(t *testing.T) {
		w := polledWorld(t)
		w.start()
		settle()
		for boot := range 5 {
			w.goesOff()
			time.Sleep(time.Duration(3600+200*boot) * time.Millisecond) // a power cycle by the firmware
			w.fencer.reads(agent.On)
			w.never("its pods were touched while it boots", 9*time.Second, func() bool { return !w.has("a") || w.tainted() != "" })
			w.status(w.n1, strings.Repeat("x", boot+2), corev1.ConditionTrue)
			w.lives(w.n1, true)
			w.never("its pods were touched once it was back", 5*time.Second, func() bool { return !w.has("a") || w.tainted() != "" })
		}
	})
}

// qm reboot, and a warm reset, leave the power on.
func TestAWarmResetSuspectsNobody(t *testing.T) {
	play(t, func(t *testing.T) {
		w := polledWorld(t)
		w.start()
		settle()
		w.lives(w.n1, false)
		w.never("it was asked or touched", 14*time.Second, func() bool { return w.fencer.asks > 0 || !w.has("a") || w.tainted() != "" })
	})
}

func TestAMachineThatIsSwitchedOnBetweenTwoReadingsIsOn(t *testing.T) {
	play(t, func(t *testing.T) {
		w := polledWorld(t)
		w.start()
		settle()
		w.goesOff()
		w.eventually("it is suspected", func() bool { w.fencer.mu.Lock(); defer w.fencer.mu.Unlock(); return w.fencer.asks > 0 })
		w.fencer.reads(agent.On)
		w.never("it was proven off", 12*time.Second, func() bool { return w.proven() || !w.has("a") })
	})
}

func TestWhileTheAPIServerIsAwayNobodyIsSuspected(t *testing.T) {
	play(t, func(t *testing.T) {
		w := polledWorld(t)
		w.start()
		settle()
		away := func(*http.Request) error { return errors.New("away") }
		w.refuse.Store(&away)
		w.lives(w.n1, false) // no kubelet can renew its lease
		w.fencer.reads(agent.Off)
		w.never("a node was proven off without the API server", 10*time.Second, w.proven)
		w.fencer.reads(agent.On)
		time.Sleep(3 * time.Second)
		w.refuse.Store(nil)
		w.lives(w.n1, true)
		w.never("a node was touched after the API server came back", 10*time.Second, func() bool { return w.proven() || !w.has("a") || w.tainted() != "" })
	})
}

// A rack, or whoever is asked about a rack, goes dark: the fault is more likely ours, and the
// nodes move once their leases are silent, as without poll.
func TestPolledOffsCountInTheStorm(t *testing.T) {
	play(t, func(t *testing.T) {
		w, k := ported(t)
		lives := w.leads.Lives
		lives.ReadsOff(w.ns+"-n3", true) // and n1 is two of four nodes
		off := w.offWith(k, os.ErrDeadlineExceeded)
		w.never("it was asked in its turn, or proven off early, in a storm", 10*time.Second, func() bool { return w.asked() || w.proven() })
		if storm, words := lives.Storm(); !storm || !strings.Contains(words, "or read off") {
			t.Errorf("storm %v: %s", storm, words)
		}
		lives.ReadsOff(w.ns+"-n3", false)
		w.eventually("its pods are gone", func() bool { return !w.has("a") })
		if took := time.Since(off); took > 20*time.Second {
			t.Errorf("after %s: with the storm its age began anew", took)
		}
	})
}

func TestAStormThatComesAfterTheProofHasThePodsWaitForTheLease(t *testing.T) {
	play(t, func(t *testing.T) {
		w := polledWorld(t)
		w.options.OffFor = 9 * time.Second
		c := w.start()
		settle()
		off := w.goesOff()
		w.eventually("it is proven off", w.proven)
		c.Lives.ReadsOff(w.ns+"-n3", true)
		w.never("its pods were touched in a storm", 13*time.Second-time.Since(off), func() bool { return !w.has("a") || w.tainted() != "" })
		c.Lives.ReadsOff(w.ns+"-n3", false)
		w.eventually("its pods are gone", func() bool { return !w.has("a") })
	})
}

// What a device says in a storm is not kept until the storm is over.
func TestADeviceThatReadsOnAgainIsHeardInAStorm(t *testing.T) {
	play(t, func(t *testing.T) {
		w, k := ported(t)
		w.offWith(k, nil)
		w.eventually("a worker has it", w.asked)
		w.leads.Lives.ReadsOff(w.ns+"-n3", true)
		time.Sleep(2 * time.Second)
		w.fencer.reads(agent.On)
		time.Sleep(5 * time.Second)
		if storm, words := w.leads.Lives.Storm(); storm {
			t.Errorf("its reading of off counts still: %s", words)
		}
	})
}

// Beside a node that hangs it makes the storm in which nobody works on it, and would keep it up.
func TestADeviceThatLiesInAStormIsNotBelievedAfterARenewal(t *testing.T) {
	play(t, func(t *testing.T) {
		w, _ := ported(t)
		w.lives(w.ns+"-n3", false)
		time.Sleep(16 * time.Second)
		storms := func() bool { storm, _ := w.leads.Lives.Storm(); return storm }
		if storms() {
			t.Fatal("one of four is a storm")
		}
		w.fencer.reads(agent.Off)
		w.eventually("it is a storm", storms)
		time.Sleep(12 * time.Second) // it renews its lease every 10 s
		w.never("the storm goes on, or begins again", 30*time.Second, storms)
	})
}

func TestANodeThatSomebodyWorksOnIsNotMovedBeforeItsLeaseIsSilent(t *testing.T) {
	play(t, func(t *testing.T) {
		for name, change := range map[string]func(w *world){
			"cordoned": func(w *world) { w.edit(w.n1, func(n *corev1.Node) { n.Spec.Unschedulable = true }) },
			"in maintenance": func(w *world) {
				w.edit(w.n1, func(n *corev1.Node) { n.Annotations = map[string]string{MaintenanceAnnotation: ""} })
			},
			"being scaled down": func(w *world) {
				w.edit(w.n1, func(n *corev1.Node) {
					n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: scaleDownTaint, Effect: corev1.TaintEffectNoSchedule})
				})
			},
			"said to shut down": func(w *world) { w.status(w.n1, "boot-1", corev1.ConditionFalse) },
		} {
			w := polledWorld(t)
			change(w)
			w.start()
			settle()
			off := w.goesOff()
			w.eventually(name+": calls are answered", w.proven)
			w.eventually(name+": its pods are gone", func() bool { return !w.has("a") })
			if took := time.Since(off); took < 14*time.Second {
				t.Errorf("%s: its pods were deleted after %s", name, took)
			}
			w.stop()
			w.stop = nil
		}
	})
}

// Whoever takes the lead over finds the fence, has not seen the power go, and waits for the lease.
func TestANewLeaderMovesNobodyBeforeTheLeaseIsSilent(t *testing.T) {
	play(t, func(t *testing.T) {
		w := polledWorld(t)
		w.start()
		settle()
		w.goesOff()
		w.eventually("it is proven off", w.proven)
		w.stop()
		began := time.Now()
		w.start()
		w.eventually("its pods are gone", func() bool { return !w.has("a") })
		if took := time.Since(began); took < 14*time.Second || took > 19*time.Second {
			t.Errorf("its pods were deleted %s after the change of the lead", took)
		}
		if w.seen.said("FencepostReadmitted", "") > 0 || w.fencer.did("void "+w.n1) {
			t.Error("the fence was taken for a wrong one")
		}
	})
}

// It can prove nothing more before the lease is silent, and each question is a login or two.
func TestANodeThatOnlyItsRecordSaysIsOffIsAskedAboutLikeASilentOne(t *testing.T) {
	for name, c := range map[string]struct {
		then agent.State
		lead bool // another one takes it
		most int
	}{
		"its device answers a new leader":         {agent.Off, true, 6},
		"its device refuses a new leader":         {agent.Unclear, true, 2},
		"its device refuses whom it has answered": {agent.Unclear, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T) {
				w := polledWorld(t)
				w.suspectAfter = 30 * time.Second
				w.options.OffFor = 25 * time.Second
				w.start()
				settle()
				w.goesOff()
				w.eventually("it is proven off", w.proven)
				if c.lead {
					w.stop()
				}
				w.fencer.reads(c.then)
				asks := func() int { w.fencer.mu.Lock(); defer w.fencer.mu.Unlock(); return w.fencer.asks }
				before := asks()
				if c.lead {
					w.start()
				}
				time.Sleep(16 * time.Second)
				if n := asks() - before; n == 0 || n > c.most {
					t.Errorf("its agents were asked %d times in 16 s", n)
				}
				w.fencer.reads(agent.Off)
				w.eventually("its pods are gone once its lease is silent", func() bool { return !w.has("a") })
			})
		})
	}
}

func TestNothingIsPlannedForANodeThatReadsOffInAStorm(t *testing.T) {
	n := &corev1.Node{}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	s := &state{Node: n, LeaseRV: "7", Life: fence.Alive, Holds: true, Covered: true, ReadsOff: true, OffFor: time.Minute, Proof: fence.PowerReading,
		Fence: &fencer.Fence{Kind: fence.PowerReading, Missed: "a renewal", LeaseRV: "7"}}
	if steps := plan(s); !slices.Contains(steps, stepTaint) {
		t.Errorf("steps %v without a storm", steps)
	}
	for _, s.AskDue = range []bool{false, true} {
		if s.Storm = true; len(plan(s)) > 0 {
			t.Errorf("steps %v", plan(s))
		}
	}
}

// A new leader has not watched the lease for long: a single reading is no proof of the boot that renewed it.
func TestAnEarlyFenceOfBeforeARenewalIsNoReasonToAsk(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	n.Status.NodeInfo.BootID = "b"
	s := &state{Node: n, LeaseRV: "8", Life: fence.Unwatched, Holds: true, Covered: true, AskDue: true,
		Fence: &fencer.Fence{Kind: fence.PowerReading, LeaseRV: "7", NodeUID: "u", BootID: "b"}}
	if steps := plan(s); !slices.Equal(steps, []step{stepAsk}) {
		t.Errorf("steps %v of a fence of a silent lease", steps)
	}
	s.Fence.Missed = "a renewal"
	if steps := plan(s); len(steps) > 0 {
		t.Errorf("steps %v", steps)
	}
}

func TestAFenceThatWasProvenEarlyIsNotTakenForAWrongOneWhereItsNodeOptsOut(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: map[string]string{OptOutAnnotation: "false"}}}
	n.Status.NodeInfo.BootID = "b"
	s := &state{Node: n, LeaseRV: "7", Life: fence.Alive, Fence: &fencer.Fence{Kind: fence.PowerReading, Missed: "a renewal", LeaseRV: "7", NodeUID: "u", BootID: "b"}}
	if steps := plan(s); len(steps) > 0 {
		t.Errorf("steps %v", steps)
	}
	if s.LeaseRV = "8"; len(plan(s)) == 0 {
		t.Error("nor is one that is: its node has renewed its lease")
	}
}

func TestOnlyThePowerIsReadAsOff(t *testing.T) {
	for name, c := range map[string]struct {
		answer fencer.Answer
		want   agent.State
	}{
		"the power":                       {fencer.Answer{State: agent.Off, Kind: fence.PowerReading}, agent.Off},
		"twice, and nothing is missing":   {fencer.Answer{OffTwice: true}, agent.Off},
		"it is cut off from its storage":  {fencer.Answer{State: agent.Off, Kind: fence.StorageFence}, agent.Unclear},
		"the same, and it has power":      {fencer.Answer{State: agent.Off, Kind: fence.StorageFence, On: []string{"bmc"}}, agent.On},
		"it renewed its lease meanwhile":  {fencer.Answer{Why: fence.VoidLeaseChanged}, agent.Unclear},
		"it is on, and renewed its lease": {fencer.Answer{Why: fence.VoidLeaseChanged, On: []string{"bmc"}}, agent.On},
	} {
		if got := readingOf(&c.answer, time.Now()).State; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// What is written of a machine without a lease would be bound to nothing.
func TestANodeWithoutALeaseIsNotSeenToGoOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolls(100, observe.NewTracker(time.Minute, 1))
		p.keep(map[string]*polled{"n1": {node: &corev1.Node{}, every: time.Second}})
		for _, s := range []agent.State{agent.On, agent.Off} {
			time.Sleep(time.Second)
			if !p.heard("n1", Reading{State: s, At: time.Now()}, true).IsZero() {
				t.Error("it was")
			}
		}
		if _, _, off := p.off("n1", ""); off {
			t.Error("it is")
		}
	})
}

func TestAKubeletIsNotSoughtOnThisMachine(t *testing.T) {
	n := &corev1.Node{}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
	for address, want := range map[string]string{"127.0.0.1": "", "::1": "", "10.0.0.1": "10.0.0.1:10250"} {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		if got := portOf(n); got != want {
			t.Errorf("%s: %q", address, got)
		}
	}
}

// A device may have started anew in between.
func TestAReadingOfOnThatIsOldIsNotWhereAMachineFellFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lives := observe.NewTracker(time.Minute, 1)
		lives.Observe(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "7"}})
		p := newPolls(100, lives)
		p.keep(map[string]*polled{"n1": {node: &corev1.Node{}, every: time.Second}})
		for _, c := range []struct {
			gap  time.Duration
			fell bool
		}{{5 * time.Second, true}, {5100 * time.Millisecond, false}} {
			time.Sleep(time.Second)
			p.heard("n1", Reading{State: agent.On, At: time.Now()}, true)
			time.Sleep(c.gap)
			if fell := !p.heard("n1", Reading{State: agent.Off, At: time.Now().Add(-c.gap / 2)}, true).IsZero(); fell != c.fell { // it took half of that
				t.Errorf("after %s: %v", c.gap, fell)
			}
		}
	})
}

func TestARenewalEndsAFallUntilTheMachineReadsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lives := observe.NewTracker(time.Minute, 1)
		lives.Observe(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "7"}})
		p := newPolls(100, lives)
		p.keep(map[string]*polled{"n1": {node: &corev1.Node{}, every: time.Second}})
		for i, c := range []struct {
			state      agent.State
			leaseRV    string
			off        bool
			otherLevel bool
		}{{agent.On, "7", false, false}, {agent.Off, "7", true, false}, {agent.Off, "8", false, false}, {agent.Off, "7", false, false},
			{agent.On, "7", false, false}, {agent.Off, "7", true, false}, {agent.Off, "7", false, true},
			{agent.On, "7", false, true}, {agent.Off, "7", false, false}} {
			time.Sleep(time.Second)
			p.heard("n1", Reading{State: c.state, At: time.Now()}, !c.otherLevel)
			if _, _, off := p.off("n1", c.leaseRV); off != c.off {
				t.Errorf("%d: %v", i, off)
			}
		}
	})
}

// The watch may be behind what is read live.
func TestASilentPortSaysNothingOfAnotherAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := func(name, address string) *corev1.Node {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
			n.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
			return n
		}
		k, p := &kubelets{}, newPorts()
		p.dial = k.dial
		n1 := node("n1", "10.0.0.1")
		for _, n := range []*corev1.Node{n1, node("n2", "10.0.0.2"), node("n4", "10.0.0.4")} {
			p.look(t.Context(), n)
		}
		k.say(os.ErrDeadlineExceeded)
		since := time.Now()
		p.knock(t.Context(), n1)
		time.Sleep(portWithin)
		synctest.Wait()
		if !p.fell(n1, since) || p.fell(n1, time.Now()) {
			t.Error("it fell silent since, and not before")
		}
		if p.fell(node("n1", "10.0.0.9"), since) {
			t.Error("so did another address")
		}
		time.Sleep(portSaid)
		if p.fell(n1, since) {
			t.Error("it is said for longer than it was found out")
		}
	})
}

package kubeapi

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/csi-fencepost/csi-fencepost/deploy"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/proxy/guard"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// With the policies in force, the pod of a driver that may not fence (guardOnly) may hold a node's
// lock. That keeps others from fencing the node for as long, and nothing else: it claims nothing by
// it, what the agents read counts, and an operator takes the lock away, however long it is to last.
func TestADriversPodThatHoldsANodesLockKeepsOthersFromFencingItForAsLong(t *testing.T) {
	r := newRigThatAnswers(t, "locked", bed.StageOptions{Config: "evidence: {outOfServiceTaint: false}\n" +
		"fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, " +
		"nodeParameters: {plug: {locked-held: held, locked-ever: ever, locked-unplugged: unplugged}}}}]}]}"})
	r.writer("csi-fencepost-writer-of-", "csi-fencepost-fencer-")
	plugs := r.Plugs("fence_bmc")
	r.start("fp")
	r.proxy = r.dial("fp")
	target := r.node("target")
	nodes, volumes := map[string]*node{}, map[string]*bed.Volume{}
	for _, name := range []string{"held", "ever", "unplugged"} {
		r.must(plugs.Set(name, true))
		nodes[name], volumes[name] = r.node(name), r.volume(name)
		r.attach(volumes[name], nodes[name])
		nodes[name].fallSilent()
		nodes[name].lists(volumes[name], true, false)
		r.deleting(volumes[name], nodes[name])
		r.attachment(volumes[name], target)
	}
	isOff := func(name string) bool {
		state, err := os.ReadFile(r.Socket("plugs/" + name))
		r.must(err)
		return strings.TrimSpace(string(state)) == "OFF"
	}
	// fenced has a person with the rights of a sidecar that fences turn the node off, as soon as it can.
	fenced := func(name string) chan answer {
		done, node := make(chan answer, 1), nodes[name].name
		go func() {
			done <- execute(t, r.Bed.Fencepost, "fence", "off", node, "--reason=silent", "--force", "--yes", "--config="+r.Socket("config.yaml"),
				"--agent-dirs="+r.Socket("agents"), "--kubeconfig="+r.ServiceAccountKubeconfig())
		}()
		return done
	}
	store := record.NewStore(guardOnly.CoordinationV1(), namespace)
	forever := func(name string) {
		lease := policedLease(nodes[name].name)
		lease.Annotations = map[string]string{record.NodeAnnotation: nodes[name].name}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = ptr.To("nobody"), ptr.To[int32](math.MaxInt32), ptr.To(metav1.NowMicro())
		_, err := guardOnly.CoordinationV1().Leases(namespace).Create(r.ctx(), lease, metav1.CreateOptions{})
		r.must(err)
	}

	lock, err := store.Lock(r.ctx(), nodes["held"].name, "a driver's pod", 2*time.Second)
	r.must(err)
	forever("ever")
	forever("unplugged")
	held, ever := fenced("held"), fenced("ever")
	_, err = lock.Update(r.ctx(), func(rec *record.Record) (bool, error) {
		rec.PutFence(record.Fence{ID: "f", Kind: fence.PowerReading, Phase: record.Fenced, Actor: "x", Agents: []string{"bmc"},
			Machine: record.FencedMachine{NodeUID: nodes["held"].uid, BootID: nodes["held"].boot}}, "Fenced")
		return true, nil
	})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "fences.csi-fencepost.io") {
		t.Errorf("who has the lock vouches for a fence: %v", err)
	}
	r.Never(4*time.Second, "a node is turned off whose lock another one holds", func() bool { return isOff("held") || isOff("ever") })
	for _, name := range []string{"held", "ever"} {
		if err := r.publish(volumes[name].Handle, target); err == nil {
			t.Errorf("%s: it is published elsewhere while the machine runs", name)
		}
	}
	r.must(plugs.Set("unplugged", false)) // by hand
	r.WaitFor(10*time.Second, "what is read of a node that is locked counts", func() bool { return r.publish(volumes["unplugged"].Handle, target) == nil })

	lock.Abandon()
	leases := operator.CoordinationV1().Leases(namespace)
	_, err = leases.Patch(r.ctx(), record.LeaseName(nodes["ever"].name), "application/merge-patch+json", []byte(`{"spec":{"holderIdentity":null}}`), metav1.PatchOptions{})
	allowed(t, "an operator takes a lock away", err)
	for name, done := range map[string]chan answer{"held": held, "ever": ever} {
		(<-done).ends(t, 0)
		if !isOff(name) {
			t.Errorf("%s is not off", name)
		}
		// What was read as on a moment ago is used for as long again as reading takes on a busy machine.
		r.WaitFor(15*time.Second, name+" is published elsewhere", func() bool { return r.publish(volumes[name].Handle, target) == nil })
	}
}

// With the policies in force, the pod of a driver adds no fence to those that the brakes on fencing
// count, and shifts none for who has seen it; for a process that starts later it begins then at most. It
// takes fences away from what others count, and not from what the process counts that made them.
func TestADriversPodTakesFencesFromTheBrakesOfOthersAndAddsNone(t *testing.T) {
	single.take(t)
	policed.use(t)
	ctx := t.Context()
	const node, address = "braked", "192.0.2.111"
	n, err := policed.admin.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, policed.admin.CoreV1().Nodes().Delete(context.Background(), node, metav1.DeleteOptions{}))
	})
	n.Status.NodeInfo.BootID, n.Status.Addresses = "b1", []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	n, err = policed.admin.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
	must(t, err)
	a, cuts := storageOf(t, sidecar, "id-braked", address)
	process := func(by kubernetes.Interface) *fencer.Fencer {
		t.Helper()
		f, err := fencer.New(fencer.Options{Levels: agent.Levels{{{Agent: cuts, Timeout: 10 * time.Second}}}, Records: record.NewStore(by.CoordinationV1(), namespace),
			Nodes: by.CoreV1(), Leases: by.CoordinationV1(), Driver: a.DriverName(), Actor: "csi-fencepost test"})
		must(t, err)
		return f
	}
	of := func(f *fencer.Fencer) (got []string) {
		t.Helper()
		all, err := f.Counting(ctx)
		must(t, err)
		for _, one := range all {
			if one.Node == node {
				got = append(got, one.ID+" "+one.At.UTC().Format(time.RFC3339))
			}
		}
		return got
	}
	counts := func(f *fencer.Fencer, when string, want ...string) {
		t.Helper()
		got := of(f)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the brakes count %q, want %q", when, got, want)
		}
	}
	own, other := process(sidecar), process(sidecar)
	guards := record.NewStore(guardOnly.CoordinationV1(), namespace)
	writes := func(change func(r *record.Record)) {
		t.Helper()
		_, err := guards.Update(ctx, node, func(r *record.Record) (bool, error) { change(r); return true, nil })
		allowed(t, "the pod of a driver writes the record", err)
	}
	writes(func(r *record.Record) {
		r.Fences = append(r.Fences, record.Fence{ID: "forged", Kind: fence.PowerReading, Phase: record.Fenced, Actor: "csi-fencepost x", Agents: []string{"bmc"},
			StartedAt: time.Now().UTC().Format(time.RFC3339), Machine: record.FencedMachine{NodeUID: string(n.UID), BootID: "b1"},
			Steps: []record.FenceStep{{Agent: "bmc", Action: "off", At: time.Now().UTC().Format(time.RFC3339)}}})
	})
	counts(other, "it writes one")

	answer, err := own.Off(ctx, fencer.Target{Node: node, UID: string(n.UID), BootID: "b1", NodeID: "id-braked"}, "silent", true)
	must(t, err)
	at := strings.Join(of(own), ", ")
	if !strings.HasPrefix(at, answer.Fence+" ") {
		t.Fatalf("its sidecar cuts the node off as %s, and counts %q", answer.Fence, at)
	}
	counts(other, "its sidecar cuts the node off", at)
	writes(func(r *record.Record) {
		r.FenceByID(answer.Fence).StartedAt = time.Now().Add(30 * time.Minute).UTC().Format(time.RFC3339)
	})
	counts(own, "it shifts that", at)
	counts(other, "it shifts that", at)
	if got, now := of(process(sidecar)), answer.Fence+" "+time.Now().UTC().Format(time.RFC3339); len(got) != 1 || got[0] < at || got[0] > now {
		t.Errorf("a process that starts then counts %q, want it as begun by %q", got, now)
	}
	writes(func(r *record.Record) { r.Fences = nil })
	counts(own, "it takes that away", at)
	counts(other, "it takes that away")
}

// With the policies in force, who may fence for his driver's storage adds to what the brakes count, on
// whatever nodes, what he vouches for: fences of his driver at its storage. No fence of another driver's
// storage or of the power is added, and what is on record begins no earlier or later by him.
func TestWhoMayFenceForHisDriversStorageAddsToTheBrakesWhatHeVouchesFor(t *testing.T) {
	single.take(t)
	policed.use(t)
	ctx := t.Context()
	brakes, err := fencer.New(fencer.Options{Records: record.NewStore(sidecar.CoordinationV1(), namespace), Nodes: sidecar.CoreV1(), Leases: sidecar.CoordinationV1(),
		Driver: "array.example.com", Actor: "csi-fencepost test"})
	must(t, err)
	began := time.Now().Add(-10 * time.Minute).UTC().Format(time.RFC3339)
	writes := func(by kubernetes.Interface, node string, kind fence.Kind, driver string) error {
		_, err := record.NewStore(by.CoordinationV1(), namespace).Update(ctx, node, func(r *record.Record) (bool, error) {
			r.PutFence(record.Fence{ID: "f-" + node, Kind: kind, Driver: driver, Phase: record.Fenced, Actor: "csi-fencepost x", Agents: []string{"a"}, StartedAt: began,
				Machine: record.FencedMachine{NodeUID: "u1", BootID: "b1"}, Steps: []record.FenceStep{{Agent: "a", Action: "off", At: began}}}, "Fenced")
			return true, nil
		})
		return err
	}
	counts := func(when string, want ...string) {
		t.Helper()
		all, err := brakes.Counting(ctx)
		must(t, err)
		var got []string
		for _, f := range all {
			if strings.HasPrefix(f.Node, "adds-") {
				got = append(got, f.Node+" "+f.At.UTC().Format(time.RFC3339))
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the brakes count %q, want %q", when, got, want)
		}
	}
	allowed(t, "who may fence turns a node off", writes(sidecar, "adds-off", fence.PowerReading, ""))
	counts("somebody else has fenced", "adds-off "+began)
	allowed(t, "he vouches for a fence at his driver's storage", writes(storageOnly, "adds-own", fence.StorageFence, sanDriver))
	counts("he has vouched for one", "adds-off "+began, "adds-own "+began)
	for what, err := range map[string]error{
		"of another driver's storage": writes(storageOnly, "adds-another", fence.StorageFence, "array.example.com"),
		"of the power":                writes(storageOnly, "adds-power", fence.PowerReading, ""),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("he vouches for a fence %s: %v", what, err)
		}
	}
	for _, at := range []string{time.Now().Add(-2 * time.Hour).UTC().Format(time.RFC3339), time.Now().Add(time.Hour).UTC().Format(time.RFC3339)} {
		_, err := record.NewStore(storageOnly.CoordinationV1(), namespace).Update(ctx, "adds-off", func(r *record.Record) (bool, error) {
			r.FenceByID("f-adds-off").StartedAt, r.FenceByID("f-adds-off").Steps[0].At = at, at
			return true, nil
		})
		allowed(t, "he writes the record of another node", err)
		counts("he has changed when another fence began", "adds-off "+began, "adds-own "+began)
	}
}

// With the policies in force, the pod of a driver may write the Lease of another driver's seal.
// That ends the seal, so that a node which only waits for a volume, and is silent, keeps it. No
// seal is put on by it.
func TestADriversPodThatWritesTheSealOfAnotherDriverEndsItAndPutsNoneOn(t *testing.T) {
	r := newPolicedRig(t, "seal")
	first, waits, next := r.node("first"), r.node("waits"), r.node("next")
	before, after := r.volume("before"), r.volume("after")
	for _, v := range []*bed.Volume{before, after} {
		r.attach(v, first)
		waits.lists(v, true, false)
	}
	waits.fallSilent()
	for _, v := range []*bed.Volume{before, after} {
		r.letGo(v, first)
		r.settle()
		r.must(r.unpublish(v.Handle, first))
		r.gone(v, first)
		r.attachment(v, next)
	}
	r.settle()
	r.must(r.publish(before.Handle, next))

	leases, name := guardOnly.CoordinationV1().Leases(namespace), guard.SealPrefix+r.Driver
	seal, err := leases.Get(r.ctx(), name, metav1.GetOptions{})
	r.must(err)
	forged := seal.DeepCopy()
	forged.Spec.HolderIdentity = ptr.To("another")
	forged, err = leases.Update(r.ctx(), forged, metav1.UpdateOptions{})
	allowed(t, "it writes the seal of another driver", err)
	r.wantRefused(r.publish(after.Handle, next), fence.HolderUnknown, waits.name)
	forged.Spec = seal.Spec
	_, err = leases.Update(r.ctx(), forged, metav1.UpdateOptions{})
	allowed(t, "it writes it back as it was", err)
	r.wantRefused(r.publish(after.Handle, next), fence.HolderUnknown, waits.name)
	r.wantCalls(after.Handle, "publish "+first.id, "unpublish "+first.id)
}

// Without the policies whoever writes records asks about power, and answers. A forged "unclear" lets a
// person's taint count while the machine runs, and by itself nothing; it does not silence who can
// tell. Whoever asks has a machine read at most once a second.
func TestWhoeverWritesRecordsAsksAndAnswersAboutPower(t *testing.T) {
	own := &server{} // failover looks after all nodes of a cluster
	t.Cleanup(func() { must(t, own.stop()) })
	r := newRigOn(t, own, "asked", bed.StageOptions{Config: "fencing: {apart: true, maxUnhealthy: 100%, suspectAfter: 12s}"})
	plugs := r.Plugs("fence_bmc")
	r.start("fp")
	r.proxy = r.dial("fp")
	target, idle := r.node("target"), r.node("idle")
	tainted, plain, on := r.node("tainted"), r.node("plain"), r.node("on")
	volumes := map[*node]*bed.Volume{}
	for _, n := range []*node{tainted, plain, on} {
		v := r.volume("of-" + n.name)
		volumes[n] = v
		r.attach(v, n)
		n.fallSilent()
		n.lists(v, true, false)
		r.deleting(v, n)
		r.attachment(v, target)
	}
	for _, n := range []*node{tainted, on} {
		n.taint()
		r.bound(n, true)
	}
	refusal := func(n *node) string { return status.Convert(r.publish(volumes[n].Handle, target)).Message() }
	if said := refusal(tainted); !strings.Contains(said, "csi-fencepost failover has not said") {
		t.Errorf("nobody has said anything of its power: %q", said)
	}

	// The account of a driver, as any that writes Leases there.
	forger := record.NewStore(clientOf(t, r.ServiceAccountKubeconfig()).CoordinationV1(), namespace)
	ctx, stop := context.WithCancel(r.ctx())
	var forging sync.WaitGroup
	defer forging.Wait()
	defer stop()
	forging.Go(func() {
		for ctx.Err() == nil {
			for _, n := range []*node{tainted, plain, on} {
				_, _ = forger.Update(ctx, n.name, func(rec *record.Record) (changed bool, _ error) {
					for _, q := range rec.Open() {
						changed = rec.Reply(q, record.Answer{State: "unclear", Actor: "forged"}) || changed
					}
					return changed, nil
				})
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	r.WaitFor(20*time.Second, "a forged unclear lets the taint count", func() bool { return refusal(tainted) == "" })
	r.WaitFor(20*time.Second, "it is heard of the other one, too", func() bool { return !strings.Contains(refusal(plain), "has not said") })
	r.wantRefused(r.publish(volumes[plain].Handle, target), fence.HolderUnknown, plain.name)
	r.wantAttached(volumes[plain].Handle, plain)

	for _, n := range []*node{on, idle} {
		r.must(plugs.Set(n.name, true))
	}
	agent, err := os.ReadFile(r.Socket("agents/fence_bmc"))
	r.must(err)
	slow := strings.Replace(string(agent), "state=$(cat", `test "$plug" = `+on.name+" && sleep 1\nstate=$(cat", 1) // later than the forger
	r.must(os.WriteFile(r.Socket("agents/fence_bmc"), []byte(slow), 0o755))
	p := r.LaunchApart("failover: {enabled: true}\nfencing: {maxUnhealthy: 100%, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, nodeParameters: {plug: {"+
		on.name+": "+on.name+", "+idle.name+": "+idle.name+"}}}}]}]}", "--agent-dirs="+r.Socket("agents"), "--http-endpoint=127.0.0.1:0", "--leader-election", "--leader-election-namespace="+deploy.ApartNamespace)
	r.WaitLog(p, 30*time.Second, `"Leader of the background work" .* me=true`)
	r.WaitFor(30*time.Second, "failover is heard, although unclear was answered before", func() bool {
		said := refusal(on)
		if said == "" {
			t.Fatal("a forged unclear silences failover")
		}
		return strings.Contains(said, "reads the machine as on")
	})
	r.wantAttached(volumes[on].Handle, on)

	began := time.Now()
	for time.Since(began) < 5*time.Second {
		q := record.Question{ID: fmt.Sprint(time.Now().UnixNano()), Actor: "a", Driver: r.Driver, NodeUID: idle.uid, BootID: idle.boot}
		_, err := forger.Update(r.ctx(), idle.name, func(rec *record.Record) (bool, error) { return rec.Ask(q), nil })
		r.must(err)
		time.Sleep(20 * time.Millisecond)
	}
	n, err := plugs.Reads(idle.name)
	r.must(err)
	if most := int(time.Since(began)/time.Second) + 1; n == 0 || n > most {
		t.Errorf("whoever asks all the time has the machine read %d times within %s, not once a second", n, time.Since(began))
	}
}

// Whoever writes records, and may not fence, answers about power: "on" keeps a volume waiting that a person's word
// would free, and "off" is a forged fence, of a silent node alone. With the policies neither counts: both
// volumes wait until somebody who may fence has answered.
func TestAForgedAnswerAboutPowerCountsOnlyWithoutThePolicies(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]*server{"forged": common, "forged-in-vain": policed} {
		t.Run(name, func(t *testing.T) {
			alone := func() {
				if server == policed {
					answering.Lock()
					t.Cleanup(answering.Unlock)
				}
			}
			r := newRigAfter(t, alone, server, name, bed.StageOptions{Config: "evidence: {outOfServiceTaint: false}\nfencing: {apart: true, maxUnhealthy: 100%, suspectAfter: 12s}"})
			forger, fences := clientOf(t, r.ServiceAccountKubeconfig()), r.Client
			if server == policed {
				r.writer("csi-fencepost-writer-of-")
				fences = sidecar
			}
			r.start("fp")
			r.proxy = r.dial("fp")
			target := r.node("target")
			on, off, lives := r.silent("on", target), r.silent("off", target), r.used("lives", target)
			on.holder.confirm()

			// answered is what a call says to whom has the volume published elsewhere, while all that is asked of the
			// node is answered. Who may not vouch for it writes it by hand.
			answered := func(u *usedBy, by kubernetes.Interface, a record.Answer) (refusal string, questions int) {
				t.Helper()
				done := make(chan error, 1)
				go func() { done <- r.publish(u.Handle, target) }()
				for {
					_, err := record.NewStore(by.CoordinationV1(), namespace).Update(r.ctx(), u.holder.name, func(rec *record.Record) (changed bool, _ error) {
						for _, q := range rec.Open() {
							switch {
							case server != policed || by == fences:
								changed = rec.Reply(q, a) || changed
							case q.Answer == nil:
								changed, rec.Question(q.ID).Answer = true, &a
							}
						}
						return changed, nil
					})
					r.must(err)
					select {
					case err := <-done:
						rec, failed := r.records().Get(r.ctx(), u.holder.name)
						r.must(failed)
						if rec != nil {
							questions = len(rec.Questions)
						}
						return status.Convert(err).Message(), questions
					case <-time.After(50 * time.Millisecond):
					}
				}
			}
			until := func(what string, u *usedBy, by kubernetes.Interface, a record.Answer, words string) {
				t.Helper()
				r.WaitFor(20*time.Second, what, func() bool {
					refusal, _ := answered(u, by, a)
					return words == "" && refusal == "" || words != "" && strings.Contains(refusal, words)
				})
			}
			saysOff := record.Answer{State: "off", Agents: []string{"bmc"}, Actor: "forged"}
			saysOn := record.Answer{State: "on", On: []string{"bmc"}, Agents: []string{"bmc"}, Actor: "forged"}
			if server == common {
				until("off is a forged fence", off, forger, saysOff, "")
				until("on is heard", on, forger, saysOn, "reads the machine as on")
			} else {
				for u, a := range map[*usedBy]record.Answer{off: saysOff, on: saysOn} {
					if refusal, questions := answered(u, forger, a); refusal == "" || questions == 0 {
						t.Errorf("%s: a forged answer is believed, or nobody asked (%d): %q", u.Name, questions, refusal)
					}
				}
			}
			r.wantKept("a person confirms it off, and it is read as on", on)
			lives.holder.renew()
			if refusal, _ := answered(lives, forger, saysOff); refusal == "" {
				t.Error("a node that renews its lease is taken for off")
			}

			if server == policed {
				until("a person's word counts where nobody reads the machine", on, fences, record.Answer{State: "unclear", Uncovered: true, Actor: "failover"}, "")
				until("what who may fence reads counts", off, fences, saysOff, "")
			}
		})
	}
}

// With the policies in force, the pod of a driver takes away what another one asked about power. While nobody is
// answered no person's word counts, so that the volume waits, and nothing is freed of a machine that runs; the
// next question is answered. That a machine was read as off is written down apart from the question, and counts.
func TestADriversPodThatTakesQuestionsAwayKeepsVolumesWaiting(t *testing.T) {
	r := newRigThatAnswers(t, "taken", bed.StageOptions{Config: "evidence: {outOfServiceTaint: false}\nfencing: {apart: true, maxUnhealthy: 100%, suspectAfter: 12s}"})
	runs, off, target := r.node("runs"), r.node("off"), r.node("target")
	volumes := map[*node]*bed.Volume{runs: r.volume("of-runs"), off: r.volume("of-off")}
	// Another driver's sidecar has the agents, and may fence. They read slowly, so that no answer is first.
	answers := &rig{t: t, Stage: policed.use(t).Stage(t, "answers", bed.StageOptions{Nodes: -1, Manual: true, Config: "evidence: {outOfServiceTaint: false}\n" +
		"fencing: {maxUnhealthy: 100%, suspectAfter: 12s, levels: [{agents: [{name: bmc, timeout: 5s, exec: {agent: fence_bmc, nodeParameters: {plug: {" +
		runs.name + ": " + runs.name + ", " + off.name + ": " + off.name + "}}}}]}]}"})}
	plugs := answers.Plugs("fence_bmc")
	agent, err := os.ReadFile(answers.Socket("agents/fence_bmc"))
	r.must(err)
	r.must(os.WriteFile(answers.Socket("agents/fence_bmc"), []byte(strings.Replace(string(agent), "state=$(cat", "sleep 1\nstate=$(cat", 1)), 0o755))
	r.must(plugs.Set(runs.name, true))
	r.must(plugs.Set(off.name, false))
	r.writer("csi-fencepost-writer-of-")
	answers.writer("csi-fencepost-writer-of-", "csi-fencepost-fencer-")
	for _, of := range []*rig{r, answers} {
		of.start("fp")
	}
	r.proxy = r.dial("fp")

	ctx, stop := context.WithCancel(r.ctx())
	var taking sync.WaitGroup
	defer taking.Wait()
	defer stop()
	taken := map[*node]*atomic.Int32{runs: {}, off: {}}
	for n, v := range volumes {
		r.attach(v, n)
		taking.Go(func() {
			guards := record.NewStore(guardOnly.CoordinationV1(), namespace)
			for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
				some := 0
				if _, err := guards.Update(ctx, n.name, func(rec *record.Record) (bool, error) {
					some, rec.Questions = len(rec.Questions), nil
					return some > 0, nil
				}); err == nil {
					taken[n].Add(int32(some))
				}
			}
		})
		n.fallSilent()
		n.lists(v, true, false)
		r.deleting(v, n)
		r.attachment(v, target)
	}
	runs.confirm()
	r.settle()
	r.WaitFor(40*time.Second, "what was read as off counts all the same", func() bool { return r.publish(volumes[off].Handle, target) == nil })
	if taken[off].Load() == 0 {
		t.Error("no question about the machine that is off was taken away")
	}
	refusal := func() string {
		err := r.publish(volumes[runs].Handle, target)
		if err == nil {
			t.Fatal("a machine that runs is taken for off while nobody is answered")
		}
		return status.Convert(err).Message()
	}
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		refusal()
	}
	r.WaitFor(10*time.Second, "it waits since the question is gone", func() bool {
		return taken[runs].Load() > 2 && strings.Contains(refusal(), "taken the question away")
	})
	r.wantCalls(volumes[runs].Handle, "publish "+runs.id)

	stop()
	taking.Wait()
	r.WaitFor(40*time.Second, "the next question is answered", func() bool { return strings.Contains(refusal(), "["+string(fence.EvidenceContradicted)+"]") })
	r.must(plugs.Set(runs.name, false))
	r.WaitFor(40*time.Second, "and so is one once the machine is off", func() bool { return r.publish(volumes[runs].Handle, target) == nil })
	for n, v := range volumes {
		r.wantCalls(v.Handle, "publish "+n.id, "unpublish "+n.id, "publish "+target.id)
	}
}

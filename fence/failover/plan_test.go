package failover

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/fencer"
)

func aNode(boot string, ready corev1.ConditionStatus) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-1", ResourceVersion: "7"}}
	n.Status.NodeInfo.BootID = boot
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(time.Unix(1000, 0))}}
	return n
}

func taintOf(value string) corev1.Taint {
	return corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: value, Effect: corev1.TaintEffectNoExecute}
}

func onePod(change func(*pod)) []pod {
	p := pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db"}}}
	if change != nil {
		change(&p)
	}
	return []pod{p}
}

// silent is a node that has been due for fencing for long, and that its agent
// reads as on.
func silent() *state {
	return &state{Name: "n1", Node: aNode("boot-1", corev1.ConditionUnknown), LeaseRV: "5", Life: fence.Stale, Age: time.Minute,
		Holds: true, Attached: 1, Covered: true, Answer: &fencer.Answer{State: agent.On}, FenceAfter: 50 * time.Second, Pods: onePod(nil)}
}

// unexecuted is our taint before Kubernetes deletes pods for it.
func unexecuted() corev1.Taint {
	t := taintOf("csi-fencepost")
	t.Effect = corev1.TaintEffectNoSchedule
	return t
}

func powerFence() *fencer.Fence {
	return &fencer.Fence{Node: "n1", NodeUID: "uid-1", BootID: "boot-1", LeaseRV: "5", Kind: fence.PowerReading, Vouched: true, Cut: true, Sidecar: true}
}

func proven(kind fence.Kind) *state {
	s := silent()
	s.Proof, s.Fence, s.Answer = kind, powerFence(), &fencer.Answer{State: agent.Off}
	s.Fence.Kind = kind
	return s
}

// returned is a node that renews its lease after a fence of that kind.
func returned(kind fence.Kind, boot string) *state {
	s := proven(kind)
	s.Life, s.Age, s.Synced, s.Node = fence.Alive, 0, true, aNode(boot, corev1.ConditionTrue)
	if kind == fence.PowerReading {
		s.Proof, s.Pods = "", nil
		s.Node.Spec.Taints = []corev1.Taint{taintOf("csi-fencepost")}
	} else {
		s.Pods = []pod{}
	}
	return s
}

func unvouched(s *state) *state {
	s.Fence.Vouched = false
	return s
}

// anew is the node under another Node object than the fenced one.
func anew(s *state) *state {
	s.Node.UID = "uid-2"
	return s
}

func with(s *state, change func(*state)) *state { change(s); return s }

func witnessed(s *state) *state {
	s.Fence.Witness = witnessOf(s.Node, s.Fence)
	return s
}

func TestPlan(t *testing.T) {
	for name, c := range map[string]struct {
		state *state
		want  []step
	}{
		"a living node that nothing is known against needs nothing":            {with(silent(), func(s *state) { s.Life = fence.Alive }), nil},
		"a node not watched for long enough is left alone":                     {with(silent(), func(s *state) { s.Life = fence.Unwatched }), nil},
		"the agents of one that the API server calls silent are asked at once": {with(silent(), func(s *state) { s.Life, s.Overdue, s.AskDue = fence.Unwatched, true, true }), []step{stepAsk}},
		"for that it is neither cut off nor suspected":                         {with(silent(), func(s *state) { s.Life, s.Overdue = fence.Unwatched, true }), nil},
		"what they read as off is believed":                                    {with(proven(fence.PowerReading), func(s *state) { s.Life, s.Overdue = fence.Unwatched, true }), []step{stepTaint, stepEvict}},
		"without an agent it is left alone": {with(proven(fence.OperatorConfirmation), func(s *state) {
			s.Life, s.Overdue, s.Covered, s.Fence = fence.Unwatched, true, false, nil
		}), nil},
		"so is one that holds nothing, and one that opts out": {with(silent(), func(s *state) {
			s.Life, s.Overdue, s.AskDue, s.Node.Annotations = fence.Unwatched, true, true, map[string]string{OptOutAnnotation: "false"}
		}), nil},
		"a silent node that holds nothing is left alone": {with(silent(), func(s *state) { s.Holds = false }), nil},
		"another driver's fenced node that holds nothing of ours is not ours to fence": {with(silent(), func(s *state) {
			s.Holds, s.Node.Spec.Taints = false, []corev1.Taint{taintOf("csi-fencepost")}
		}), nil},
		"a silent node's agents are asked first":      {with(silent(), func(s *state) { s.AskDue = true }), []step{stepAsk}},
		"before fenceAfter it is suspected":           {with(silent(), func(s *state) { s.Age = 49 * time.Second }), []step{stepSuspect}},
		"without fenceAfter it is never fenced":       {with(silent(), func(s *state) { s.FenceAfter = 0 }), []step{stepSuspect}},
		"without an agent it is never fenced":         {with(silent(), func(s *state) { s.Covered = false }), []step{stepSuspect}},
		"a node without a lease is never fenced":      {with(silent(), func(s *state) { s.Life = fence.Unknown }), []step{stepSuspect}},
		"after fenceAfter it is fenced":               {silent(), []step{stepCut}},
		"so is one that the agents are unclear about": {with(silent(), func(s *state) { s.Answer.State = agent.Unclear }), []step{stepCut}},
		"one that reads off is not fenced once more":  {with(silent(), func(s *state) { s.Answer.State = agent.Off }), []step{stepSuspect}},
		"a brake holds the fence":                     {with(silent(), func(s *state) { s.Brake = BrakeStorm }), []step{stepBlocked}},
		"a node that opts out is only suspected": {with(silent(), func(s *state) { s.Node.Annotations = map[string]string{OptOutAnnotation: "false"} }),
			[]step{stepSuspect}},
		"a node that opts out is not evicted although it is off": {with(proven(fence.PowerReading), func(s *state) {
			s.Node.Annotations = map[string]string{OptOutAnnotation: "false"}
		}), []step{stepSuspect}},

		"under a power fence the taint comes before the pods": {proven(fence.PowerReading), []step{stepTaint, stepEvict}},
		"an old reading is asked again before anything is done": {with(proven(fence.PowerReading), func(s *state) { s.AskDue = true }),
			[]step{stepAsk}},
		"an operator's word moves pods too": {with(proven(fence.OperatorConfirmation), func(s *state) { s.Covered, s.Fence, s.Answer = false, nil, nil }),
			[]step{stepTaint, stepEvict}},
		"a person's taint is left on": {with(proven(fence.PowerReading), func(s *state) { s.Node.Spec.Taints = []corev1.Taint{taintOf("nodeshutdown")} }),
			[]step{stepEvict}},
		"with our taint on already only the pods are left": {with(proven(fence.PowerReading), func(s *state) { s.Node.Spec.Taints = []corev1.Taint{taintOf("csi-fencepost")} }),
			[]step{stepEvict}},
		"a new leader goes on before the node is stale once more": {with(proven(fence.PowerReading), func(s *state) {
			s.Life, s.Node.Spec.Taints = fence.Unwatched, []corev1.Taint{taintOf("csi-fencepost")}
		}), []step{stepEvict}},
		"once its pods are gone, Kubernetes deletes the others": {with(proven(fence.PowerReading), func(s *state) {
			s.Node.Spec.Taints, s.Pods = []corev1.Taint{unexecuted()}, []pod{}
		}), []step{stepEmpty}},
		"not before": {with(proven(fence.PowerReading), func(s *state) { s.Node.Spec.Taints = []corev1.Taint{unexecuted()} }), []step{stepEvict}},
		"nor where a pod opts out": {with(proven(fence.PowerReading), func(s *state) {
			s.Node.Spec.Taints, s.Pods = []corev1.Taint{unexecuted()}, onePod(func(p *pod) { p.OptedOut = true })
		}), nil},
		"a pod that opts out stays": {with(proven(fence.PowerReading), func(s *state) { s.Pods = onePod(func(p *pod) { p.OptedOut = true }) }), []step{stepTaint}},
		"a Node that is gone gets no taint": {with(proven(fence.PowerReading), func(s *state) { s.Node = nil }),
			[]step{stepEvict}},
		"another driver's volume does not keep a pod on a machine without power": {with(proven(fence.PowerReading), func(s *state) {
			s.Pods = onePod(func(p *pod) { p.Foreign = []string{"x"} })
		}), []step{stepTaint, stepEvict}},

		"no power before everything has moved":   {with(moved(), func(s *state) { s.Attached = 1 }), nil},
		"power when everything has moved":        {moved(), []step{stepPowerOn}},
		"no power where somebody works on it":    {with(moved(), func(s *state) { s.Node.Annotations = map[string]string{MaintenanceAnnotation: "disk"} }), nil},
		"no power without a Node":                {with(moved(), func(s *state) { s.Node = nil }), nil},
		"no power to what a person switched off": {with(moved(), func(s *state) { s.Fence.Sidecar = false }), nil},
		"no power unless configured":             {with(moved(), func(s *state) { s.PowerOn = false }), nil},
		"no power for a node found off":          {with(moved(), func(s *state) { s.Fence.Cut = false }), nil},

		"a storage fence puts no taint on": {proven(fence.StorageFence), []step{stepEvict}},
		"under a storage fence a pod with another driver's volume stays": {with(proven(fence.StorageFence), func(s *state) {
			s.Pods = onePod(func(p *pod) { p.Foreign = []string{"x"} })
		}), nil},
		"under a storage fence pods move from a living node": {with(proven(fence.StorageFence), func(s *state) {
			s.Life, s.Node = fence.Alive, aNode("boot-1", corev1.ConditionTrue)
		}), []step{stepEvict}},

		"a new boot readmits": {returned(fence.PowerReading, "boot-2"), []step{stepUntaint, stepVoid}},
		"also while it lists what moved": {with(returned(fence.PowerReading, "boot-2"), func(s *state) { s.Moved.Handle = "h" }),
			[]step{stepUntaint, stepVoid}},
		"an empty boot ID is not a new one": {with(returned(fence.PowerReading, ""), func(s *state) { s.Moved.Handle = "h" }),
			[]step{stepWarn, stepVoid}},
		"a new boot readmits only when Ready, and till then the fence says that it has booted": {with(returned(fence.PowerReading, "boot-2"), func(s *state) {
			s.Node.Status.Conditions[0].Status = corev1.ConditionFalse
		}), nil},
		"where our taint is not on, nothing needs it to say so": {with(returned(fence.PowerReading, "boot-2"), func(s *state) {
			s.Node.Status.Conditions[0].Status, s.Node.Spec.Taints = corev1.ConditionFalse, nil
		}), []step{stepVoid}},
		"under the same boot the fence is void before it is Ready": {with(returned(fence.PowerReading, "boot-1"), func(s *state) {
			s.Node.Status.Conditions[0].Status = corev1.ConditionFalse
		}), []step{stepWarn, stepVoid}},
		"a new boot that is not seen to live yet does not readmit": {with(returned(fence.PowerReading, "boot-2"), func(s *state) {
			s.Life, s.Holds = fence.Unwatched, false
		}), nil},
		"under the same boot the fence is void and the taint stays while it lists what moved": {
			with(returned(fence.PowerReading, "boot-1"), func(s *state) { s.Moved.Handle = "h" }), []step{stepWarn, stepVoid}},
		"under the same boot the taint comes off when nothing that moved is listed": {
			with(returned(fence.PowerReading, "boot-1"), func(s *state) { s.Fence.Void = "renewed" }), []step{stepUntaint}},
		"a fence that is void already does not tell that it has booted since what our taint came from": {
			with(returned(fence.PowerReading, "boot-2"), func(s *state) { s.Fence.Void, s.Moved.Handle = "booted", "h" }), nil},
		"nor does none": {with(returned(fence.PowerReading, "boot-2"), func(s *state) { s.Fence, s.Moved.Handle = nil, "h" }), nil},
		"a fence of an earlier boot is void before our taint comes on for another reason": {
			with(proven(fence.OperatorConfirmation), func(s *state) { s.Fence, s.Node = powerFence(), aNode("boot-2", corev1.ConditionUnknown) }),
			[]step{stepVoid, stepTaint, stepEvict}},
		"a machine that registers again in the same boot is warned of": {
			anew(with(returned(fence.PowerReading, "boot-1"), func(s *state) { s.Moved.Handle = "h" })), []step{stepWarn, stepVoid}},
		"a person's taint is not taken off": {with(returned(fence.PowerReading, "boot-2"), func(s *state) {
			s.Fence.Void, s.Node.Spec.Taints = "x", []corev1.Taint{taintOf("nodeshutdown")}
		}), nil},

		"one that nobody vouches for is not lifted after a boot": {unvouched(returned(fence.StorageFence, "boot-2")), []step{stepStranded}},
		"nor by its witness":                    {unvouched(witnessed(returned(fence.StorageFence, "boot-1"))), []step{stepStranded}},
		"nor because the driver revokes access": {unvouched(with(returned(fence.StorageFence, "boot-1"), func(s *state) { s.Revokes = true })), []step{stepStranded}},
		"nor does it keep a silent node from being asked for": {unvouched(with(silent(), func(s *state) {
			s.Fence, s.AskDue = powerFence(), true
			s.Fence.Kind = fence.StorageFence
		})), []step{stepAsk}},
		"and fenced": {unvouched(with(silent(), func(s *state) {
			s.Fence = powerFence()
			s.Fence.Kind = fence.StorageFence
		})), []step{stepCut}},
		"a storage fence is lifted after a boot": {with(returned(fence.StorageFence, "boot-2"), func(s *state) { s.Moved.Handle = "h" }), []step{stepLift}},
		"not where another machine boots under the fenced Node, whatever else would lift it": {witnessed(with(returned(fence.StorageFence, "boot-2"), func(s *state) {
			s.Fence.SystemUUID, s.Node.Status.NodeInfo.SystemUUID, s.Revokes = "aaaa", "bbbb", true
		})), []step{stepStranded}},
		"nor for another machine that registered anew": {witnessed(anew(with(returned(fence.StorageFence, "boot-2"), func(s *state) {
			s.Fence.SystemUUID, s.Node.Status.NodeInfo.SystemUUID = "aaaa", "bbbb"
		}))), []step{stepStranded}},
		"one boot is one machine, whatever its firmware says": {witnessed(with(returned(fence.StorageFence, "boot-1"), func(s *state) {
			s.Fence.SystemUUID, s.Node.Status.NodeInfo.SystemUUID = "aaaa", "bbbb"
		})), []step{stepLift}},
		"not where another machine boots under the fenced Node": {with(returned(fence.StorageFence, "boot-2"), func(s *state) {
			s.Fence.SystemUUID, s.Node.Status.NodeInfo.SystemUUID = "aaaa", "bbbb"
		}), []step{stepStranded}},
		"the boot of a fence of another Node may be that of a publish": {anew(returned(fence.StorageFence, "boot-2")), []step{stepStranded}},
		"also where its kubelet lists what moved":                      {anew(with(returned(fence.StorageFence, "boot-2"), func(s *state) { s.Moved.Handle = "h" })), []step{stepWitness}},
		"and waited until it drops that, too": {
			witnessed(anew(with(returned(fence.StorageFence, "boot-2"), func(s *state) { s.Moved.Handle = "h" }))), nil},
		"and lifted then, too": {witnessed(anew(returned(fence.StorageFence, "boot-2"))), []step{stepLift}},
		"where the driver revokes access it is lifted of another Node, too": {
			anew(with(returned(fence.StorageFence, "boot-2"), func(s *state) { s.Revokes, s.Moved.Handle = true, "h" })), []step{stepLift}},
		"not while the node is silent": {with(returned(fence.StorageFence, "boot-2"), func(s *state) { s.Life = fence.Stale }), nil},
		"under the same boot it is noted first that the kubelet lists what moved": {
			with(returned(fence.StorageFence, "boot-1"), func(s *state) { s.Moved.Handle = "h" }), []step{stepWitness}},
		"not before its kubelet has synced what it lists":          {with(returned(fence.StorageFence, "boot-1"), func(s *state) { s.Moved.Handle, s.MovedLong, s.Synced = "h", true, false }), nil},
		"which is said where it has not for long":                  {witnessed(with(returned(fence.StorageFence, "boot-1"), func(s *state) { s.Moved.Handle, s.MovedLong = "h", true })), []step{stepListed}},
		"and waited until it drops it":                             {witnessed(with(returned(fence.StorageFence, "boot-1"), func(s *state) { s.Moved.Handle = "h" })), nil},
		"and lifted then":                                          {witnessed(returned(fence.StorageFence, "boot-1")), []step{stepLift}},
		"a kubelet that was never seen to list it is not believed": {returned(fence.StorageFence, "boot-1"), []step{stepStranded}},
		"nor one that was not Ready without a break": {with(witnessed(returned(fence.StorageFence, "boot-1")), func(s *state) {
			s.Node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Unix(2000, 0))
		}), []step{stepStranded}},
		"nor for the witness of another Node in the same boot": {anew(witnessed(returned(fence.StorageFence, "boot-1"))), []step{stepStranded}},
		"nor for that of an earlier boot": {with(witnessed(anew(returned(fence.StorageFence, "boot-1"))), func(s *state) {
			s.Node.Status.NodeInfo.BootID = "boot-2"
		}), []step{stepStranded}},
		"nor for the witness of an earlier fence": {with(witnessed(returned(fence.StorageFence, "boot-1")), func(s *state) { s.Fence.LeaseRV = "99" }),
			[]step{stepStranded}},
		"where the driver revokes access it is lifted whatever the kubelet says": {
			with(returned(fence.StorageFence, "boot-1"), func(s *state) { s.Revokes, s.Moved.Handle = true, "h" }), []step{stepLift}},
		"but not while a volume is on its way": {
			with(returned(fence.StorageFence, "boot-1"), func(s *state) { s.Revokes, s.Leaving = true, true }), []step{stepStranded}},
		"nor before the node is Ready": {
			with(returned(fence.StorageFence, "boot-1"), func(s *state) { s.Revokes, s.Node = true, aNode("boot-1", corev1.ConditionUnknown) }), nil},

		"a node that dies while its storage fence is being lifted is cut off anew": {halfLifted(), []step{stepCut}},
		"its agents are asked first, as any silent node's":                         {with(halfLifted(), func(s *state) { s.AskDue = true }), []step{stepAsk}},
		"before fenceAfter it is suspected, too":                                   {with(halfLifted(), func(s *state) { s.Age = 49 * time.Second }), []step{stepSuspect}},
		"a brake holds that, too":                                                  {with(halfLifted(), func(s *state) { s.Brake = BrakeStorm }), []step{stepBlocked}},
		"it is not cut off before it is known to be silent":                        {with(halfLifted(), func(s *state) { s.Life = fence.Unwatched }), nil},
		"and an operator's word moves its pods":                                    {with(halfLifted(), func(s *state) { s.Proof = fence.OperatorConfirmation }), []step{stepTaint, stepEvict}},
		"but gives it no power, nor access, back":                                  {with(halfLiftedAndMoved(), func(s *state) { s.Proof = fence.OperatorConfirmation }), nil},
		"one that lives is lifted on":                                              {with(returned(fence.StorageFence, "boot-2"), func(s *state) { s.Fence.Lifting, s.Proof = true, "" }), []step{stepLift}},
		"a machine under the storage fence of another is cut off as any other":     {others(silent()), []step{stepCut}},
		"and suspected before":                                                     {others(with(silent(), func(s *state) { s.Age = 49 * time.Second })), []step{stepSuspect}},
		"one that registered anew, too":                                            {anew(others(silent())), []step{stepCut}},
		"and left alone before it is known to be silent":                           {others(with(silent(), func(s *state) { s.Life = fence.Unwatched })), nil},
		"a person is told where no fence of its own came of it":                    {others(with(silent(), func(s *state) { s.Answer.State = agent.Off })), []step{stepSuspect}},
		"an operator's word moves its pods, too":                                   {others(with(silent(), func(s *state) { s.Proof = fence.OperatorConfirmation })), []step{stepTaint, stepEvict}},
		"and our taint comes off when it is back":                                  {others(back(silent())), []step{stepUntaint, stepStranded}},
		"not before its kubelet has let go":                                        {others(with(back(silent()), func(s *state) { s.Moved.Handle = "h" })), []step{stepStranded}},
		"one whose Node is gone may be whichever machine":                          {with(others(silent()), func(s *state) { s.Node = nil }), []step{stepSuspect}},
		"a storage fence that does not read as in place is made anew": {with(halfLifted(), func(s *state) {
			s.Fence.Lifting, s.Answer.Uncut = false, true
		}), []step{stepCut}},
		"one of which the agents do not answer is not, and that is said": {with(halfLifted(), func(s *state) { s.Fence.Lifting = false }), []step{stepSuspect}},
		"nor is one whose Node is gone": {with(halfLifted(), func(s *state) {
			s.Fence.Lifting, s.Answer.Uncut, s.Node = false, true, nil
		}), []step{stepSuspect}},
		"not before the agents are asked": {with(halfLifted(), func(s *state) {
			s.Fence.Lifting, s.Answer.Uncut, s.AskDue = false, true, true
		}), []step{stepAsk}},
		"nor where it reads as in place": {with(halfLifted(), func(s *state) { s.Fence.Lifting, s.Answer.State = false, agent.Off }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := plan(c.state); !reflect.DeepEqual(got, c.want) {
				t.Errorf("plan = %q, want %q", got, c.want)
			}
		})
	}
}

// others puts the node under the storage fence of another machine that had its name.
func others(s *state) *state {
	s.Fence = powerFence()
	s.Fence.Kind, s.Fence.BootID, s.Fence.SystemUUID = fence.StorageFence, "boot-0", "aaaa"
	s.Node.Status.NodeInfo.SystemUUID = "bbbb"
	return s
}

// back is the node alive, under our taint.
func back(s *state) *state {
	s.Life, s.Age, s.Node = fence.Alive, 0, aNode("boot-1", corev1.ConditionTrue)
	s.Node.Spec.Taints = []corev1.Taint{taintOf("csi-fencepost")}
	return s
}

// halfLifted is silent under a storage fence that is being lifted.
func halfLifted() *state {
	s := silent()
	s.Fence, s.Answer = powerFence(), &fencer.Answer{State: agent.Unclear}
	s.Fence.Kind, s.Fence.Lifting = fence.StorageFence, true
	return s
}

func halfLiftedAndMoved() *state {
	s, m := halfLifted(), moved()
	s.Node, s.Pods, s.Attached, s.PowerOn = m.Node, m.Pods, m.Attached, m.PowerOn
	return s
}

// moved is a fenced node without pods or volumes.
func moved() *state {
	s := proven(fence.PowerReading)
	s.Node.Spec.Taints, s.Pods, s.Attached, s.PowerOn = []corev1.Taint{taintOf("csi-fencepost")}, []pod{}, 0, true
	return s
}

func TestANodeThatBootsUnderOurTaintIsNotSuspectedBeforeItsTime(t *testing.T) {
	s := with(silent(), func(s *state) {
		s.Life, s.Age = fence.Unwatched, 0
		s.Node.Spec.Taints = []corev1.Taint{taintOf("csi-fencepost")}
	})
	if got := plan(s); len(got) > 0 {
		t.Errorf("plan = %q", got)
	}
}

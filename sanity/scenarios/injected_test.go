package scenarios

import (
	"bytes"
	"os"
	"os/exec"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

// injected: what `csi-fencepost inject` makes of a driver's manifests is what
// runs. The array stands where the driver's container has its socket;
// csi-fencepost and external-attacher have the arguments, variables, volumes and
// configuration of the injected pod, and csi-fencepost its rights.
var injected = []scenario{
	{
		name: "injected",
		rule: "R1: injected in mode Enforce, csi-fencepost keeps a volume on a node that is cut off and writes on until an operator's word",
		options: bed.StageOptions{Array: trusting, Manifests: func(s *bed.Stage) []byte {
			return inject(s, "rights of mode Enforce (writes ledgers and records) for service account "+s.Name+"/hostpath-controller", "--mode=Enforce")
		}},
		guardedOnly: true,
		story:       enforcedAsInjected,
	},
	{
		name: "injected-obs",
		rule: "R5: injected as nobody chose otherwise, csi-fencepost forwards everything, and says what Enforce would have refused",
		options: bed.StageOptions{Manifests: func(s *bed.Stage) []byte {
			return inject(s, "mode Observe, to begin with")
		}},
		guardedOnly: true,
		story:       observed,
	},
}

// inject runs `csi-fencepost inject` on the manifests of a driver, under the
// stage's names, and returns what it prints. It has to say says.
func inject(s *bed.Stage, says string, flags ...string) []byte {
	s.T.Helper()
	vendors, err := os.ReadFile("testdata/hostpath.yaml")
	if err != nil {
		s.T.Fatalf("%s: %v", s.Name, err)
	}
	names := strings.NewReplacer("hostpath.example.com", s.Driver, "namespace: storage\n", "namespace: "+s.Name+"\n")
	file := s.Write("hostpath.yaml", names.Replace(string(vendors)), 0o644)
	cmd := exec.CommandContext(s.T.Context(), s.Bed.Fencepost, append([]string{"inject", "-f", file, "--image=csi-fencepost:dev"}, flags...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		s.T.Fatalf("%s: csi-fencepost inject: %v\n%s", s.Name, err, stderr.String())
	}
	if !strings.Contains(stderr.String(), says) {
		s.T.Fatalf("%s: csi-fencepost inject does not say %q:\n%s", s.Name, says, stderr.String())
	}
	return stdout.Bytes()
}

func enforcedAsInjected(p *play) {
	v, old, next, db2 := p.cutOffAndReplaced()
	p.refusedFor(fence.HolderStale, v, old, next)
	p.stands(v, old, next, db2, fence.HolderStale)
	old.PowerOff()
	old.Confirm()
	p.moves(v, db2, next, "the operator's word")
	p.heldBy(v, next)
	if log := p.LogOf(p.Fencepost); denied.MatchString(log) {
		p.t.Error("csi-fencepost asked for a right that inject did not give it: see its log")
	}
}

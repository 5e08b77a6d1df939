package scenarios

import (
	"bytes"
	"os"
	"os/exec"
	"strings"

	"github.com/csi-fencepost/csi-fencepost/deploy"
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
		rule: "R5: put in by the README's command, csi-fencepost forwards everything, says what Enforce would have refused, and is taken out by the README's command",
		options: bed.StageOptions{Manifests: func(s *bed.Stage) []byte {
			// Another driver is guarded already: kubectl fails where somebody else creates at the
			// same moment what drivers share.
			others, err := deploy.Observe(deploy.Names{Namespace: s.Name, ServiceAccount: "another", Driver: "another-" + s.Driver})
			if err != nil {
				s.T.Fatalf("%s: %v", s.Name, err)
			}
			s.Apply(others)
			vendors(s)
			s.Shell("kubectl apply -f driver.yaml")
			_, said := s.Shell(readme(s)[0])
			s.Log("%s", said)
			if !strings.Contains(said, "mode Observe, to begin with") {
				s.T.Fatalf("%s: csi-fencepost inject does not say that it begins in mode Observe", s.Name)
			}
			return []byte(stored(s))
		}},
		guardedOnly: true,
		story: func(p *play) {
			observed(p)
			p.Shell(readme(p.Stage)[1])
			if left := stored(p.Stage); strings.Contains(left, "fencepost") {
				p.t.Errorf("the README's command does not take csi-fencepost out of the workload:\n%s", left)
			}
		},
	},
}

// vendors writes driver.yaml, the manifests of a driver, under the stage's names.
func vendors(s *bed.Stage) (path string) {
	s.T.Helper()
	text, err := os.ReadFile("testdata/hostpath.yaml")
	if err != nil {
		s.T.Fatalf("%s: %v", s.Name, err)
	}
	names := strings.NewReplacer("hostpath.example.com", s.Driver, "namespace: storage\n", "namespace: "+s.Name+"\n")
	return s.Write("driver.yaml", names.Replace(string(text)), 0o644)
}

// readme is what the README tells a person to type who has driver.yaml, line by
// line: csi-fencepost is put in, and taken out.
func readme(s *bed.Stage) []string {
	s.T.Helper()
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		s.T.Fatalf("%s: %v", s.Name, err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Put it into your driver\n")
	_, block, _ := strings.Cut(section, "\n```sh\n")
	block, _, _ = strings.Cut(block, "\n```\n")
	lines := strings.Split(block, "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "csi-fencepost inject ") || !strings.HasPrefix(lines[1], "csi-fencepost uninject ") {
		s.T.Fatalf("%s: the README does not begin with one command that puts it in and one that takes it out: %q", s.Name, lines)
	}
	return lines
}

// stored is the driver's workload as the API server has it.
func stored(s *bed.Stage) string {
	s.T.Helper()
	workload, _ := s.Shell("kubectl get statefulset hostpath-controller -n " + s.Name + " -o yaml")
	return workload
}

// inject runs `csi-fencepost inject` on the manifests of a driver, under the
// stage's names, and returns what it prints. It has to say says.
func inject(s *bed.Stage, says string, flags ...string) []byte {
	s.T.Helper()
	cmd := exec.CommandContext(s.T.Context(), s.Bed.Fencepost, append([]string{"inject", "-f", vendors(s), "--image=csi-fencepost:dev"}, flags...)...)
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

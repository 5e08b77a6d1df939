package scenarios

import (
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/sanity/array"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

const (
	password = "hunter2-never-to-be-seen"
	stripped = "***stripped***"
)

// secrets of a volume go to the driver and nowhere else.
var secrets = []scenario{
	{
		name: "secrets",
		rule: "R5: a takeover carries the volume's secrets, and nothing that is said shows them",
		options: bed.StageOptions{Secrets: map[string]string{"password": password}, FencepostArgs: []string{"--v=5"},
			Array: func(s *array.Switches) { s.EnforceSingleAttach = false }},
		guardedOnly: true,
		story:       secretsKept,
	},
}

func secretsKept(p *play) {
	p.Secret("login", map[string]string{"password": password})
	v, old, next := p.Volume("disk", bed.VolumeOptions{Secret: "login"}), p.Nodes[0], p.Nodes[1]
	db := p.Pod("db", old, v)
	db.WaitRunning(60 * time.Second)

	// A takeover by the publish alone, and a driver that quotes the secret.
	old.CutOff()
	old.WaitNotReady()
	db.ForceDelete()
	v.StripAttachment(old)
	db2 := p.Pod("db2", next, v)
	v.WaitRefused(next, string(fence.HolderStale), p.Bed.Clocks.ForceDetachAfter+60*time.Second)
	p.mustWriteOn(v, old)
	quoting := array.Fault{Method: array.Unpublish, Node: old.ID, Do: array.Fail, Code: codes.PermissionDenied, Message: "login as admin/" + password + " failed"}
	rejected := p.Array.Inject(quoting)
	old.PowerOff()
	old.Confirm()
	text := v.WaitRefused(next, string(fence.UnpublishFailed), 30*time.Second)
	p.Log("refused: %s", text)
	if !strings.Contains(text, "login as admin/"+stripped+" failed") {
		p.t.Errorf("the driver's words were to be there without the secret: %s", text)
	}
	p.WaitEvent("Pod", "db2", 30*time.Second, stripped)
	rejected.Clear()
	db2.WaitRunning(60 * time.Second)
	p.carriedSecrets(v, array.Unpublish, old)
	p.carriedSecrets(v, array.Publish, next)

	// The same words in the answers to calls that are only forwarded.
	for _, method := range []string{array.Unpublish, array.Publish} {
		quoting.Method, quoting.Node = method, next.ID
		rejected := p.Array.Inject(quoting)
		if method == array.Unpublish {
			db2.Delete()
		} else {
			db2 = p.Pod("db2", next, v)
		}
		p.WaitFor(30*time.Second, "the driver's refusal on the VolumeAttachment", func() bool {
			return strings.Contains(v.Refusal(next), "login as admin/"+stripped+" failed")
		})
		p.spotless()
		rejected.Clear()
		if method == array.Unpublish {
			p.WaitFor(60*time.Second, "the volume is nowhere", func() bool { return len(p.Array.Attached(v.Handle)) == 0 && v.Attachment(next) == nil })
		}
	}
	db2.WaitRunning(60 * time.Second)
	p.spotless()
	p.outcome("the secrets reached the driver and nobody else")
}

// carriedSecrets fails unless a call for that node went well with its secrets.
func (p *play) carriedSecrets(v *bed.Volume, method string, n *bed.Node) {
	p.t.Helper()
	for _, c := range p.Array.CallsOf(method, v.Handle) {
		if c.Node == n.ID && c.Code == codes.OK && c.Secrets {
			return
		}
	}
	p.t.Errorf("no %s of %s carried its secrets", method, n.Name)
}

// spotless fails if the password is in anything that people read.
func (p *play) spotless() {
	p.t.Helper()
	told := p.Told()
	told["csi-fencepost's log"], told["external-attacher's log"] = p.LogOf(p.Fencepost), p.LogOf(p.Attacher)
	if !strings.Contains(told["csi-fencepost's log"], stripped) {
		p.t.Error("csi-fencepost's log was to have the driver's words, without the secret")
	}
	for what, text := range told {
		if strings.Contains(text, password) {
			p.t.Errorf("the secret is in %s", what)
		}
	}
}

package simulate

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-fencepost/csi-fencepost/csi"
)

// looking is a sidecar that reads the VolumeAttachment before it has the driver
// unpublish, whatever it says: what it could have known at a limit, the oracle tells.
type looking struct {
	passed
	p Parts
}

func (l looking) ControllerUnpublishVolume(ctx context.Context, r *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	node, _, _ := strings.Cut(r.NodeId, "-")
	_, _ = l.p.Client.StorageV1().VolumeAttachments().Get(ctx, csi.AttachmentName(r.VolumeId, DriverName, node), metav1.GetOptions{})
	return l.passed.ControllerUnpublishVolume(ctx, r)
}

func looks(_ context.Context, p Parts) (Sidecar, error) {
	return looking{passed{spec.NewControllerClient(p.Driver)}, p}, nil
}

// TestALimitIsNotItsNeighbour: what the oracle counts as a limit is counted there, and
// with one thing less, or with one that csi-fencepost could have known, it breaks R2.
func TestALimitIsNotItsNeighbour(t *testing.T) {
	const (
		forced   = "pause n1; force-delete-pod v1; clock 370s; not-ready n1; unlist v1 n1; detach v1 n1; resume n1; "
		slow     = forced + "restart-kubelet n1 slow; sync n1; "
		quick    = forced + "restart-kubelet n1 quick; sync n1; "
		orphaned = "force-delete-pod v1; restart-kubelet n1 quick; sync n1; status n1; "
		// The first half of an unmount.
		halfway = "delete-pod v1; sync n1; unpublish-pod v1 n1; "
		// Judged, and carried out.
		judged  = "unpublish r1 v1 n1; reads r1; "
		carried = "serve r1 driver:unpublish/v1/n1-id1"
		moved   = "schedule v1 n3; attach v1 n3; publish r1 v1 n3; serve r1 driver:publish/v1/n3-id1"
	)
	leapt := func(s Stats) int { return s.Leapt }
	staged := func(s Stats) int { return s.Staged }
	outlived := func(s Stats) int { return s.Outlived }
	stripped := func(s Stats) int { return s.Stripped }
	for name, c := range map[string]struct {
		script string
		limit  func(Stats) int // nil: R2 is broken
	}{
		"the server's clock is set back right after the detach":   {slow + "set-clock api-server -213.3s; status n1; clock 370s; " + judged + carried, leapt},
		"and the kubelet turns once more while it is judged":      {slow + "set-clock api-server -213.3s; status n1; clock 370s; " + judged + "status n1; " + carried, leapt},
		"and it had turned once more before":                      {slow + "set-clock api-server -213.3s; status n1; clock 370s; status n1; " + judged + carried, nil},
		"no clock is set":                                         {slow + "status n1; clock 370s; " + judged + carried, nil},
		"the server's clock is set forward":                       {slow + "set-clock api-server 213.3s; status n1; clock 370s; " + judged + carried, nil},
		"no kubelet restarts":                                     {forced + "set-clock api-server -213.3s; clock 370s; " + judged + carried, nil},
		"the node's clock is set forward, and nobody was there":   {quick + "crash r1; clock 370s; status n1; start r1; set-clock n1 1h1m7.3s; status n1; " + judged + carried, leapt},
		"somebody was there, but not for long enough":             {quick + "crash r1; clock 370s; start r1; clock 40s; status n1; set-clock n1 1h1m7.3s; status n1; " + judged + carried, leapt},
		"somebody was there, though not from the detach on":       {quick + "crash r1; clock 370s; start r1; clock 50s; status n1; set-clock n1 1h1m7.3s; status n1; " + judged + carried, nil},
		"somebody was there, and had not been for a while":        {quick + "cut-api r1; clock 370s; join-api r1; clock 50s; status n1; set-clock n1 1h1m7.3s; status n1; " + judged + carried, nil},
		"somebody was there from the same moment on":              {quick + "crash r1; start r1; clock 370s; status n1; set-clock n1 1h1m7.3s; status n1; " + judged + carried, nil},
		"the node's clock is set back":                            {quick + "crash r1; clock 370s; status n1; start r1; set-clock n1 -1h1m7.3s; status n1; " + judged + carried, nil},
		"stripped and forgotten":                                  {slow + "status n1; strip-va v1 n1; " + moved, stripped},
		"stripped and forgotten, on a machine that lost its name": {slow + "status n1; cut-node n1; replace n1; strip-va v1 n1; " + moved, stripped},
		"stripped and not forgotten, on one that lost its name":   {forced + "cut-node n1; replace n1; strip-va v1 n1; " + moved, nil},
		"restarted between its unpublish and its unstage":         {halfway + "restart-kubelet n1 quick; sync n1; status n1; end-pod v1; unlist v1 n1; detach v1 n1; " + judged + carried, staged},
		"the same, and again after that":                          {halfway + "restart-kubelet n1 quick; sync n1; status n1; restart-kubelet n1 quick; sync n1; end-pod v1; unlist v1 n1; detach v1 n1; " + judged + carried, staged},
		"restarted there once it was off volumesAttached":         {halfway + "end-pod v1; pause n1; clock 370s; not-ready n1; unlist v1 n1; detach v1 n1; resume n1; restart-kubelet n1 quick; sync n1; status n1; clock 60s; " + judged + carried, nil},
		"not restarted there":                                     {halfway + "end-pod v1; delete-va v1 n1; " + judged + carried, nil},
		"unmounted around a container":                            {orphaned + "outlive v1 n1; status n1; delete-va v1 n1; " + judged + carried, outlived},
		"an orphan":                                               {orphaned + "delete-va v1 n1; " + judged + carried, nil},
		"forgotten and not stripped, on one that lost its name":   {slow + "status n1; cut-node n1; replace n1; " + judged + carried, nil},
	} {
		t.Run(name, func(t *testing.T) {
			setup, events, err := ParseScript("setup nodes=3 single=moves\n" + strings.ReplaceAll(c.script, ";", "\n"))
			if err != nil {
				t.Fatal(err)
			}
			r := Replay(t, looks, setup, events, false)
			switch {
			case c.limit == nil && r.Rule != "R2":
				t.Errorf("breaks %q (%s), not R2", r.Rule, r.Violation)
			case c.limit != nil && (r.Rule != "" || c.limit(r.Stats) != 1):
				t.Errorf("breaks %q (%s), counts %+v", r.Rule, r.Violation, r.Stats)
			}
		})
	}
}

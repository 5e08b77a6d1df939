package simulate

import (
	"context"
	"slices"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// keeping is a sidecar that lets go of no holder, whatever a person says or does.
type keeping struct{ passed }

func (keeping) ControllerUnpublishVolume(context.Context, *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	return nil, status.Error(codes.FailedPrecondition, "it may be in use")
}

func keepsHolders(_ context.Context, p Parts) (Sidecar, error) {
	return keeping{passed{spec.NewControllerClient(p.Driver)}}, nil
}

// nowhere is a sidecar that refuses every publish.
type nowhere struct{ passed }

func (nowhere) ControllerPublishVolume(context.Context, *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	return nil, status.Error(codes.FailedPrecondition, "it may be in use elsewhere")
}

func publishesNowhere(_ context.Context, p Parts) (Sidecar, error) {
	return nowhere{passed{spec.NewControllerClient(p.Driver)}}, nil
}

// TestAHolderThatIsNeverReleasedIsStuck: a refusal for ever is told of, whatever the
// ending's operator tries, and the same schedule without the refusals comes right.
func TestAHolderThatIsNeverReleasedIsStuck(t *testing.T) {
	_, move, err := ParseScript(DefaultSetup().String() + "\nforce-delete-pod v1\nschedule v1 n2\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		factory Factory
		rule    string
		words   []string
		over    bool
	}{
		{"no guard", withoutGuard, "", nil, false},
		{"every unpublish is refused", keepsHolders, "stuck", []string{finishWithin.String(), "unpublish of v1 on n1"}, true},
		{"every publish is refused", publishesNowhere, "stuck", []string{"at the start", "publish of v1 on n1"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Replay(t, c.factory, DefaultSetup(), move, false)
			if r.Rule != c.rule || slices.ContainsFunc(c.words, func(word string) bool { return !strings.Contains(r.Violation, word) }) {
				t.Errorf("breaks %q (%s), want %q with the words %q", r.Rule, r.Violation, c.rule, c.words)
			}
			if started := r.Stats.StartedOver > 0; started != c.over {
				t.Errorf("every node was rebooted %d times", r.Stats.StartedOver)
			}
		})
	}
}

// TestShortfalls: a campaign whose ends start over too often, or whose failover does
// nothing, says so.
func TestShortfalls(t *testing.T) {
	busy := Failover{Fences: 1, Tainted: 1, Pods: 1}
	for _, c := range []struct {
		name  string
		whole bool
		ran   int
		over  int
		did   Failover
		want  string
	}{
		{"all is well", true, many, many * startsOver / 1000, busy, ""},
		{"one more starts over", false, many, many*startsOver/1000 + 1, Failover{}, "reboot every node"},
		{"too few to say", true, many - 1, many - 1, Failover{}, ""},
		{"tier 1 has no failover", false, many, 0, Failover{}, ""},
		{"nothing fenced", true, many, 0, Failover{Tainted: 1, Pods: 1}, "failover"},
		{"nothing tainted", true, many, 0, Failover{Fences: 1, Pods: 1}, "failover"},
		{"no pod moved", true, many, 0, Failover{Fences: 1, Tainted: 1}, "failover"},
	} {
		campaign := Campaign{Whole: c.whole, lengths: map[int]int{}, attacks: map[int]int{}}
		for n := range c.ran {
			r := Result{Attack: n}
			if n < c.over {
				r.Stats.StartedOver = 2 // in one schedule
			}
			if n == 0 {
				r.Stats.Failover = c.did
			}
			campaign.note(r)
		}
		got := strings.Join(campaign.Shortfalls(), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want it to say %q", c.name, got, c.want)
		}
		if median, longest := middle(campaign.attacks, campaign.ran); longest != c.ran-1 || median != (c.ran-1)/2 {
			t.Errorf("%s: %d schedules of as many lengths have the median %d and the longest %d", c.name, c.ran, median, longest)
		}
	}
}

package simulate

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
)

// passed is a sidecar without a guard: every call goes to the driver.
type passed struct{ spec.ControllerClient }

func (p passed) ControllerPublishVolume(ctx context.Context, r *spec.ControllerPublishVolumeRequest) (*spec.ControllerPublishVolumeResponse, error) {
	return p.ControllerClient.ControllerPublishVolume(ctx, r)
}

func (p passed) ControllerUnpublishVolume(ctx context.Context, r *spec.ControllerUnpublishVolumeRequest) (*spec.ControllerUnpublishVolumeResponse, error) {
	return p.ControllerClient.ControllerUnpublishVolume(ctx, r)
}

func (passed) Sight(context.Context, *corev1.Node) error            { return nil }
func (passed) FenceOff(context.Context, *corev1.Node, string) error { return nil }
func (passed) LeaseSeen(string, string)                             {}
func (passed) Beat(bool)                                            {}

func driverOf(p Parts) spec.ControllerClient { return spec.NewControllerClient(p.Driver) }

func withoutGuard(_ context.Context, p Parts) (Sidecar, error) { return passed{driverOf(p)}, nil }

// TestCourseIsWhatIsOrdinaryOfTheEnabled: the short way finds the same events as the
// long one, in the same order, after every step of sixty schedules.
func TestCourseIsWhatIsOrdinaryOfTheEnabled(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		setup := RandomSetup(r)
		play(t, withoutGuard, setup, seed, nil, func(w *World) {
			temper := newTemper(r, setup)
			for range 100 {
				w.perform(temper.choose(w, r))
				w.enabled(func(Event) {}) // it takes note of what is gone
				var long, short []Event
				w.enabled(func(e Event) {
					if ordinary(e.Verb) && w.ordinarily(e) {
						long = append(long, e)
						seen[e.Verb] = true
					}
				})
				w.course(func(e Event) {
					if w.ordinarily(e) {
						short = append(short, e)
					}
				})
				if !slices.Equal(long, short) {
					t.Errorf("seed %d, after %v: enabled has %v, course %v", seed, w.Trace[len(w.Trace)-1], long, short)
					break
				}
			}
			w.violation("R2", "nothing guards this world: it need not come right")
		})
	}
	for _, verb := range []string{Serve, Publish, Unpublish, GiveUp, Attach, Confirmed, Unlist, Detach, EndPod, Sync, Status, Verify, Mount, Unmnt, Register, NotReady, Start, CollectGC, Sight, Land} {
		if !seen[verb] {
			t.Errorf("%s never came up", verb)
		}
	}
}

// without is how many schedules without a guard are enough to see it broken.
const without = 400

// TestWithoutAGuardTheOracleSpeaks: the same world without csi-fencepost breaks R1
// and R2.
func TestWithoutAGuardTheOracleSpeaks(t *testing.T) {
	broken := map[string]int{}
	for seed := range uint64(without) {
		broken[Random(t, withoutGuard, seed, false).Rule]++
	}
	if broken["R1"] == 0 || broken["R2"] == 0 {
		t.Errorf("of %d schedules without a guard so many break a rule: %v", without, broken)
	}
}

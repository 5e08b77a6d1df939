package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// stormLimit is how long a side is given, from the power's end on.
const stormLimit = 15 * time.Minute

// storms measures what happens when a rack loses power: with csi-fencepost, and
// with Kubernetes alone and an operator who puts the out-of-service taint on each
// node at the very moment of its NotReady. Each side has a control plane of its
// own, one after the other: on two cores they would measure each other.
func (b *bench) storms(ctx context.Context) error {
	manager, scheduler := b.manager, b.scheduler
	defer func() { b.manager, b.scheduler = manager, scheduler }()
	if len(b.manager) == 0 {
		b.manager = raised
	}
	b.scheduler = raised
	for _, k := range stormKinds {
		if !slices.Contains(b.stormKinds, k.key) {
			continue
		}
		if err := b.stormOf(ctx, &k); err != nil {
			return err
		}
		b.stormRows(&k)
	}
	b.stormNotes()
	return nil
}

// stormOf measures one kind, on both sides.
func (b *bench) stormOf(ctx context.Context, k *stormKind) error {
	sides := []bool{false, true}
	if !k.compared {
		sides = sides[:1]
	}
	for _, alone := range sides {
		who := b.fencepost[0].name
		if alone {
			who = "Kubernetes alone"
		}
		b.progress("  storm of %d volumes on %d machines, %s: %s", b.volumesOf(k), b.stormNodes, k.name, who)
		err := b.onPlane(ctx, false, func(p *plane) error {
			s, err := b.newStormSide(p, k, alone)
			if err != nil {
				return err
			}
			sample, err := b.stormRun(s)
			if alone {
				k.alone = sample
			} else {
				k.guarded = sample
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// stormRun takes the power at a random moment of the leases, and waits until
// everything has moved.
func (b *bench) stormRun(s *stormSide) (*stormSample, error) {
	if err := sleep(s.ctx, 2*time.Second+rand.N(leasePhase)); err != nil {
		return nil, err
	}
	if s.alone || s.kind.waiting {
		s.sight.notReady = s.operator
	}
	before, err := s.usage()
	if err != nil {
		return nil, err
	}
	if s.kind.stuck {
		s.hang()
	}
	if s.kind.waiting {
		if err := s.hangBMCs(); err != nil {
			return nil, err
		}
	}
	if err := s.powerOff(); err != nil {
		return nil, err
	}
	if err := s.lookAtCores(); err != nil {
		return nil, err
	}
	held, err := s.waitInVain(b, before)
	if err != nil {
		return nil, err
	}
	if err := s.await(b, s.volumes-s.hanging(), "all have moved"); err != nil {
		return nil, err
	}
	sample, err := s.sample(before)
	if err != nil {
		return nil, err
	}
	sample.held = held
	return sample, s.free(b, sample)
}

// inVain is how long Kubernetes asks in vain for volumes, from the last node's
// taint on.
const inVain = 90 * time.Second

// waitInVain lets Kubernetes, told by its operator, ask for the volumes of
// machines of which nothing is proven, and tells what that cost its attacher.
func (s *stormSide) waitInVain(b *bench, before stormUsage) (workerTime, error) {
	if !s.kind.waiting {
		return nil, nil
	}
	for since := time.Since(s.offAt); !s.sight.allTainted(); since = time.Since(s.offAt) {
		if since > stormLimit {
			return nil, fmt.Errorf("after %s not all nodes are tainted", stormLimit)
		}
		if err := sleep(s.ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	if err := sleep(s.ctx, inVain); err != nil {
		return nil, err
	}
	after, err := readWorkerTime(s.ctx, s.metrics)
	if err != nil {
		return nil, err
	}
	if n := s.sight.count(false); n > 0 {
		return nil, fmt.Errorf("%d pods run elsewhere, and nothing was proven", n)
	}
	b.progress("    %s: the BMCs answer", s.stage.Name)
	return after.since(before.workers), s.resumeBMCs()
}

// free ends the hang of the stuck volume's unpublish, and waits until it is
// published elsewhere as well.
func (s *stormSide) free(b *bench, f *stormSample) error {
	if s.stuck == nil {
		return nil
	}
	freed := time.Now()
	s.stuck.Clear()
	if err := s.await(b, s.volumes, "the stuck one has moved"); err != nil {
		return err
	}
	f.afterFreed = s.published()[s.stuckPod()].Sub(freed).Seconds()
	return nil
}

// await waits until so many volumes were published elsewhere, and their pods run.
func (s *stormSide) await(b *bench, n int, what string) error {
	for said := time.Now(); ; {
		if err := s.lookAtCores(); err != nil {
			return err
		}
		running := s.sight.count(false)
		if running >= n {
			b.progress("    %s: %s", s.stage.Name, what)
			return nil
		}
		since := time.Since(s.offAt)
		if since > stormLimit {
			return fmt.Errorf("after %s only %d of %d pods run elsewhere; logs are kept with SANITY_KEEP=1", stormLimit, running, n)
		}
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			b.progress("    %s: %.0f s after the power's end %d pods run elsewhere", s.stage.Name, since.Seconds(), running)
		}
		if err := sleep(s.ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// lookAtCores looks once a second.
func (s *stormSide) lookAtCores() error {
	if n := len(s.cores); n > 0 && time.Since(s.cores[n-1].at) < time.Second {
		return nil
	}
	pid := 0
	if !s.alone {
		pid = s.stage.Fencepost.Pid()
	}
	l, err := lookAtCores(pid)
	s.cores = append(s.cores, l)
	return err
}

func (b *bench) stormNotes() {
	b.note("Storm: %d volumes (ReadWriteOnce, a pod each, of %s) on %d machines that lose power at once, at a random moment of their leases; %d machines are left, on which they go. "+
		"Control plane and external-attacher are real, kubelets are simulated (sanity/bench/rack says how). kube-controller-manager has %s, kube-scheduler %s, external-attacher %s on both sides; csi-fencepost has %s, "+
		"fencing.maxUnhealthy: %s, and asks a BMC for each machine (ipmi_sim). These limits hold for each client by itself; csi-fencepost has one for its guard, and others for fencing, for failover and for the Events of each. Both sides run in this one command, each on a control plane of its own, one after the other. "+
		"Proof: the BMC's reading is on the node's record; Kubernetes alone: the operator's taint, at the moment of the node's NotReady. A volume's time counts from its own node's.",
		b.stormVolumes, plural(b.stormSets(), "StatefulSet"), b.stormNodes, b.stormTaker, strings.Join(b.manager, " "), strings.Join(b.scheduler, " "), strings.Join(advised, " "), strings.Join(b.stormLimits, " "), stormShare)
	klog.Flush()
}

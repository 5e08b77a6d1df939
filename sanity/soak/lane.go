package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/csi"
	"github.com/csi-fencepost/csi-fencepost/sanity/bed"
)

const (
	// loopTakes is about how long a loop with a node that loses power takes: until
	// the node is suspected, and some seconds.
	loopTakes = suspectAfter + 5*time.Second
	// calmPause is between two loops of a calm lane.
	calmPause = 200 * time.Millisecond
)

// lane is a volume that two machines take turns with.
type lane struct {
	*ground
	name     string
	failing  bool
	volume   *bed.Volume
	machines [2]*machine
	loops    int
}

// run loops until ctx ends.
func (l *lane) run(ctx context.Context, wait time.Duration) error {
	if pause(ctx, wait) != nil {
		return nil
	}
	for ctx.Err() == nil {
		err := l.loop(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			return fmt.Errorf("lane %s: %w", l.name, err)
		}
	}
	return nil
}

func (l *lane) loop(ctx context.Context) error {
	a, b := l.machines[0], l.machines[1]
	if !l.failing {
		return l.steps(ctx, l.attach(a), l.detach(a), l.attach(b), l.detach(b), func(ctx context.Context) error {
			l.calm.Add(1)
			return pause(ctx, calmPause)
		})
	}
	// In turns the old node is unpublished by a call of its own, and by the publish
	// that takes the volume over.
	move := []act{l.release(b), l.attach(a), l.gone(b)}
	if l.loops++; l.loops%2 == 0 {
		move = []act{l.attach(a), l.release(b), l.gone(b)}
	}
	acts := append([]act{l.attach(a), l.detach(a), l.attach(b), l.startPod(b), l.powerCut(b)}, move...)
	err := l.steps(ctx, append(acts, l.comeBack(b), l.detach(a))...)
	l.machines = [2]*machine{b, a}
	if err == nil {
		l.failovers.Add(1)
	}
	return err
}

type act func(context.Context) error

func (l *lane) steps(ctx context.Context, acts ...act) error {
	for _, a := range acts {
		if err := a(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *lane) attachment(m *machine) string {
	return csi.AttachmentName(l.volume.Handle, l.stage.Driver, m.name)
}

// attach asks for the volume on a machine as the attach-detach controller does.
func (l *lane) attach(m *machine) act {
	return func(ctx context.Context) error {
		api := l.client.StorageV1().VolumeAttachments()
		_, err := api.Create(ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: l.attachment(m)},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: l.stage.Driver, NodeName: m.name,
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &l.volume.Name}}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		said := ""
		err = poll(ctx, "the volume is attached to "+m.name, func() (bool, error) {
			va, err := api.Get(ctx, l.attachment(m), metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			if e := va.Status.AttachError; e != nil {
				said = e.Message
			}
			return va.Status.Attached, nil
		})
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		return m.lists(ctx, l.volume, true)
	}
}

// detach takes the volume from a machine that does not use it any more.
func (l *lane) detach(m *machine) act {
	return func(ctx context.Context) error {
		if err := m.lists(ctx, l.volume, false); err != nil {
			return err
		}
		return l.steps(ctx, l.release(m), l.gone(m))
	}
}

// release deletes the machine's VolumeAttachment; external-attacher unpublishes.
func (l *lane) release(m *machine) act {
	return func(ctx context.Context) error {
		return l.client.StorageV1().VolumeAttachments().Delete(ctx, l.attachment(m), metav1.DeleteOptions{})
	}
}

// gone waits until the machine's VolumeAttachment is.
func (l *lane) gone(m *machine) act {
	return func(ctx context.Context) error {
		return poll(ctx, "the VolumeAttachment of "+m.name+" is gone", func() (bool, error) {
			_, err := l.client.StorageV1().VolumeAttachments().Get(ctx, l.attachment(m), metav1.GetOptions{})
			return apierrors.IsNotFound(err), err
		})
	}
}

// startPod starts what the failover has to delete.
func (l *lane) startPod(m *machine) act {
	return func(ctx context.Context) error {
		spec := l.stage.PodSpec(nil, l.volume)
		spec.NodeName, spec.NodeSelector = m.name, nil
		_, err := l.client.CoreV1().Pods(l.stage.Name).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-" + l.name, Namespace: l.stage.Name}, Spec: spec}, metav1.CreateOptions{})
		return err
	}
}

// powerCut takes the machine's power and waits for the failover, which taints the
// node and deletes its pod; then the controller may detach.
func (l *lane) powerCut(m *machine) act {
	return func(ctx context.Context) error {
		if err := m.powerOff(); err != nil {
			return err
		}
		err := poll(ctx, "the failover has tainted "+m.name+" and deleted its pod", func() (bool, error) {
			_, err := l.client.CoreV1().Pods(l.stage.Name).Get(ctx, "db-"+l.name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return false, err
			}
			return m.tainted(ctx)
		})
		if err != nil {
			return err
		}
		return m.lists(ctx, l.volume, false)
	}
}

// comeBack boots the machine and waits until it is readmitted.
func (l *lane) comeBack(m *machine) act {
	return func(ctx context.Context) error {
		if err := m.boot(ctx); err != nil {
			return err
		}
		return poll(ctx, "the taint is taken off "+m.name, func() (bool, error) {
			on, err := m.tainted(ctx)
			return err == nil && !on, err
		})
	}
}

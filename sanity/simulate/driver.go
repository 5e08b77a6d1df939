package simulate

import (
	"context"
	"slices"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
)

// invoke is the driver behind every connection of tier 1: it answers in the
// place of the connection, which never connects.
func (w *World) invoke(ctx context.Context, method string, req, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
	answer, err := w.drive(ctx, method, req)
	if err != nil {
		return err
	}
	proto.Merge(reply.(proto.Message), answer)
	return nil
}

// drive answers one call of a process to the driver. What tells what the driver
// is, is answered at once; all else waits for the scheduler.
func (w *World) drive(ctx context.Context, method string, req any) (proto.Message, error) {
	p, _ := ctx.Value(processKey{}).(*Process)
	if p == nil {
		return nil, status.Error(codes.Internal, "simulate: a driver call of nobody: "+method)
	}
	switch r := req.(type) {
	case *spec.GetPluginInfoRequest:
		return &spec.GetPluginInfoResponse{Name: DriverName, VendorVersion: "1"}, nil
	case *spec.ControllerGetCapabilitiesRequest:
		return w.capabilities(), nil
	case *spec.ControllerGetVolumeRequest:
		return driverCall[*spec.ControllerGetVolumeResponse](ctx, p, "driver:get/"+r.VolumeId, false, func() (any, error) { return w.getVolume(r) })
	case *spec.ListVolumesRequest:
		return w.listing(ctx, p)
	case *spec.ControllerPublishVolumeRequest:
		ctx = context.WithValue(ctx, manyKey{}, isShared(r.VolumeCapability))
		return driverCall[*spec.ControllerPublishVolumeResponse](ctx, p, "driver:publish/"+r.VolumeId+"/"+r.NodeId, true, func() (any, error) { return w.drivePublish(r) })
	case *spec.ControllerUnpublishVolumeRequest:
		return driverCall[*spec.ControllerUnpublishVolumeResponse](ctx, p, "driver:unpublish/"+r.VolumeId+"/"+r.NodeId, true, func() (any, error) { return w.driveUnpublish(r) })
	}
	return nil, status.Error(codes.Unimplemented, "the modelled driver has no "+method)
}

func driverCall[T proto.Message](ctx context.Context, p *Process, key string, write bool, effect func() (any, error)) (proto.Message, error) {
	value, err := p.park(ctx, toDriver, key, write, effect)
	if err != nil {
		if _, ok := status.FromError(err); !ok {
			if ctx.Err() != nil {
				return nil, status.FromContextError(ctx.Err()).Err()
			}
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		return nil, err
	}
	return value.(T), nil
}

func (w *World) capabilities() *spec.ControllerGetCapabilitiesResponse {
	types := []spec.ControllerServiceCapability_RPC_Type{spec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME}
	if w.setup.Lists != Nothing {
		types = append(types, spec.ControllerServiceCapability_RPC_LIST_VOLUMES, spec.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
		if !w.setup.ByList {
			types = append(types, spec.ControllerServiceCapability_RPC_GET_VOLUME)
		}
	}
	out := &spec.ControllerGetCapabilitiesResponse{}
	for _, t := range types {
		out.Capabilities = append(out.Capabilities, &spec.ControllerServiceCapability{
			Type: &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: t}}})
	}
	return out
}

func (w *World) getVolume(r *spec.ControllerGetVolumeRequest) (any, error) {
	v := w.volume(r.VolumeId)
	if w.unlisted == every || w.unlisted == unpublished && len(v.ever) == 0 {
		return nil, status.Error(codes.Unavailable, "the array does not answer")
	}
	return &spec.ControllerGetVolumeResponse{Volume: &spec.Volume{VolumeId: v.name},
		Status: &spec.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: w.listed(v)}}, nil
}

// listed are the node IDs to which the driver says that the volume is published.
func (w *World) listed(v *volume) []string {
	switch w.setup.Lists {
	case Truthfully:
		return v.nodes()
	case TooMany:
		return slices.Clone(v.ever)
	case Stale:
		return slices.Clone(v.before)
	}
	return nil
}

func (w *World) drivePublish(r *spec.ControllerPublishVolumeRequest) (any, error) {
	v := w.volume(r.VolumeId)
	if w.machineOf(r.NodeId) == nil {
		return nil, status.Error(codes.NotFound, "node "+r.NodeId+" does not exist")
	}
	w.landFirst(v, r.NodeId)
	for _, other := range v.nodes() {
		if other == r.NodeId || isShared(r.VolumeCapability) && v.shared[other] {
			continue
		}
		switch w.setup.Single {
		case Refuses:
			if !v.attached[r.NodeId] {
				return nil, status.Error(codes.FailedPrecondition, "volume "+v.name+" is attached to node "+other)
			}
		case Moves:
			w.taken(v, other, "moved to "+r.NodeId)
			v.detach(w.machineOf(other), other, false)
		}
	}
	v.attach(r.NodeId)
	v.attachedFor[r.NodeId] = w.machineOf(r.NodeId)
	v.share(r.NodeId, isShared(r.VolumeCapability))
	v.notePublished(r.NodeId, w.steps, w.serving[unguarded] > 0)
	return &spec.ControllerPublishVolumeResponse{}, nil
}

func (w *World) driveUnpublish(r *spec.ControllerUnpublishVolumeRequest) (any, error) {
	v := w.volume(r.VolumeId)
	if w.machineOf(r.NodeId) == nil {
		return nil, status.Error(codes.NotFound, "node "+r.NodeId+" does not exist")
	}
	w.landFirst(v, r.NodeId)
	w.taken(v, r.NodeId, "unpublished")
	v.detach(w.machineOf(r.NodeId), r.NodeId, !w.setup.Revokes)
	return &spec.ControllerUnpublishVolumeResponse{}, nil
}

// machineOf is the machine with that node ID: of several, the one with the name
// now.
func (w *World) machineOf(id string) *machine {
	for _, s := range w.slots {
		if s.machine.id == id {
			return s.machine
		}
	}
	for _, m := range w.machines {
		if m.id == id {
			return m
		}
	}
	return nil
}

// lie is the driver that says OK and does nothing.
func (w *World) lie(o *op) {
	w.remove(o)
	var value any = &spec.ControllerPublishVolumeResponse{}
	if isPrefixed(o.key, "driver:unpublish/") {
		w.seen(o)
		value = &spec.ControllerUnpublishVolumeResponse{}
	}
	if !o.orphan {
		o.answer <- reply{value, nil}
	}
}

// seen notes that the driver sees an unpublish, whatever it makes of it.
func (w *World) seen(o *op) {
	w.serving, w.server = o.reads, o.from
	parts := strings.Split(o.key, "/")
	w.taken(w.volume(parts[1]), parts[2], "unpublished")
}

// late is the driver that fails, and attaches later all the same.
func (w *World) late(o *op) {
	parts := strings.Split(o.key, "/")
	if parts[0] == "driver:unpublish" {
		w.lateDetach(o, parts[1], parts[2])
		return
	}
	v := w.volume(parts[1])
	v.late = append(v.late, parts[2])
	v.lateMany[parts[2]] = o.many
	w.fail(o, status.Error(codes.DeadlineExceeded, "the attach takes too long"))
}

// landLate keeps the promise of late.
func (w *World) landLate(v *volume, id string) {
	v.late = slices.DeleteFunc(v.late, func(other string) bool { return other == id })
	v.attach(id)
	v.attachedFor[id] = w.machineOf(id)
	v.share(id, v.lateMany[id])
}

// bmc is the fence agent of tier 1: a baseboard controller that is asked by the
// machine's node ID, where it is known, and tells the truth or nothing.
type bmc struct{ p *Process }

func (b *bmc) Name() string       { return "bmc" }
func (b *bmc) Proves() fence.Kind { return fence.PowerReading }
func (b *bmc) Covers(string) bool { return true }

func (b *bmc) machine(m agent.Machine) *machine {
	if b.p.w.setup.Cloud {
		i := slices.IndexFunc(b.p.w.machines, func(known *machine) bool { return known.provider() == m.ProviderID })
		if i < 0 {
			return nil
		}
		return b.p.w.machines[i]
	}
	if known := b.p.w.atAddress(m); known != nil {
		return known
	}
	for _, known := range b.p.w.machines {
		if m.SystemUUID != "" && known.system == m.SystemUUID {
			return known
		}
	}
	if m.NodeID != "" && m.SystemUUID == "" {
		return b.p.w.machineOf(m.NodeID)
	}
	return nil
}

func (b *bmc) Status(ctx context.Context, m agent.Machine) (agent.Reading, error) {
	value, err := b.p.park(ctx, toAgent, "agent:status/"+m.Node, false, func() (any, error) {
		known := b.machine(m)
		switch {
		case known == nil:
			return nil, status.Error(codes.NotFound, "no such machine")
		case known.power:
			return agent.Reading{State: agent.On, Detail: "on"}, nil
		}
		return agent.Reading{State: agent.Off, Detail: "off"}, nil
	})
	if err != nil {
		return agent.Reading{}, err
	}
	return value.(agent.Reading), nil
}

func (b *bmc) Off(ctx context.Context, m agent.Machine) (string, error) {
	b.p.w.judgeOff(b.p, m.Node)
	return b.power(ctx, m, "off", b.p.w.powerOff)
}

func (b *bmc) On(ctx context.Context, m agent.Machine) (string, error) {
	return b.power(ctx, m, "on", b.p.w.powerOn)
}

func (b *bmc) power(ctx context.Context, m agent.Machine, action string, do func(*machine)) (string, error) {
	_, err := b.p.park(ctx, toAgent, "agent:"+action+"/"+m.Node, true, func() (any, error) {
		known := b.machine(m)
		if known == nil {
			return nil, status.Error(codes.NotFound, "no such machine")
		}
		do(known)
		b.p.w.noteFailover(action)
		return nil, nil
	})
	return action, err
}

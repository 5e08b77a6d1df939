package simulate

import (
	"context"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A driver of the wide world may have no ControllerGetVolume, so that whoever wants to know
// where one volume is has to list them all. That takes slowList where there are many, and
// nothing but time: it is no fault that ends when the others do.

// unlisted says for which volumes the driver's list fails.
type unlisted string

const (
	none        unlisted = ""
	every       unlisted = "every"
	unpublished unlisted = "unpublished" // to any node, so far
)

// takesKey of a context is how long the call takes.
type takesKey struct{}

// listing is ListVolumes. It says what was so when it began.
func (w *World) listing(ctx context.Context, p *Process) (proto.Message, error) {
	w.mu.Lock()
	answer := &spec.ListVolumesResponse{}
	for _, v := range w.volumes {
		answer.Entries = append(answer.Entries, &spec.ListVolumesResponse_Entry{Volume: &spec.Volume{VolumeId: v.name},
			Status: &spec.ListVolumesResponse_VolumeStatus{PublishedNodeIds: w.listed(v)}})
	}
	ctx = context.WithValue(ctx, takesKey{}, w.listTakes)
	w.mu.Unlock()
	return driverCall[*spec.ListVolumesResponse](ctx, p, "driver:list", false, func() (any, error) {
		if w.unlisted == every {
			return nil, status.Error(codes.Unavailable, "the array does not answer")
		}
		return answer, nil
	})
}

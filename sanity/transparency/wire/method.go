package wire

import (
	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// Method is one RPC.
type Method struct {
	Path string // "/csi.v1.Controller/CreateVolume"
	// ClientStreams and ServerStreams: any number of messages may go that way.
	ClientStreams, ServerStreams bool
	// Judged tells that csi-fencepost decodes it, so that its messages have to be protobuf.
	Judged bool
}

// unheardOf is a service that no proxy knows.
const unheardOf = "/unheard.of.v9.Service/"

// Methods are all RPCs of the CSI spec, and one of each kind of a service that
// no proxy knows.
func Methods() []Method {
	var all []Method
	for _, service := range []grpc.ServiceDesc{
		spec.Identity_ServiceDesc, spec.Controller_ServiceDesc, spec.GroupController_ServiceDesc,
		spec.SnapshotMetadata_ServiceDesc, spec.Node_ServiceDesc,
	} {
		for _, m := range service.Methods {
			path := "/" + service.ServiceName + "/" + m.MethodName
			all = append(all, Method{Path: path, Judged: path == spec.Controller_ControllerPublishVolume_FullMethodName ||
				path == spec.Controller_ControllerUnpublishVolume_FullMethodName})
		}
		for _, s := range service.Streams {
			all = append(all, Method{Path: "/" + service.ServiceName + "/" + s.StreamName, ClientStreams: s.ClientStreams, ServerStreams: s.ServerStreams})
		}
	}
	return append(all,
		Method{Path: unheardOf + "Unary"},
		Method{Path: unheardOf + "Upload", ClientStreams: true},
		Method{Path: unheardOf + "Download", ServerStreams: true},
		Method{Path: unheardOf + "Chat", ClientStreams: true, ServerStreams: true},
	)
}

// messages is how many messages go one way.
func messages(streams bool) int {
	if streams {
		return 3
	}
	return 1
}

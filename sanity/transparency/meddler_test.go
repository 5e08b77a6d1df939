package main

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// bytesCodec passes messages on as bytes.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func serveUnix(server *grpc.Server, path string) error {
	socket, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	return server.Serve(socket)
}

func meddlingServer(driver *grpc.ClientConn) *grpc.Server {
	return grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.MaxRecvMsgSize(math.MaxInt32), grpc.UnknownServiceHandler(func(_ any, caller grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(caller.Context())
		ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(caller.Context(), sorted(md)), time.Minute)
		defer cancel()
		method, _ := grpc.MethodFromServerStream(caller)
		stream, err := driver.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method,
			grpc.ForceCodecV2(bytesCodec{}), grpc.MaxCallRecvMsgSize(math.MaxInt32))
		if err != nil {
			return err
		}
		go func() {
			for {
				var in []byte
				if err := caller.RecvMsg(&in); err != nil {
					_ = stream.CloseSend()
					return
				}
				if stream.SendMsg(&in) != nil {
					return
				}
			}
		}()
		for {
			var out []byte
			if err := stream.RecvMsg(&out); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return status.Error(status.Code(err), status.Convert(err).Message())
			}
			if err := caller.SendMsg(&out); err != nil {
				return err
			}
		}
	}))
}

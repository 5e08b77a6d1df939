// Package proxy is the gRPC edge between external-attacher and a CSI driver.
//
//	attacher ──unix──▶ Server ─┬─ ControllerPublishVolume   ─▶ Guard ─▶ Driver ─┐
//	                           ├─ ControllerUnpublishVolume ─▶ Guard ─▶ Driver ─┼─unix─▶ CSI driver
//	                           └─ everything else ───────────▶ raw bytes ───────┘
//
// The Guard of the product is package proxy/guard.
//
// It guarantees:
//
//   - The two intercepted calls reach the driver only through the Guard. They
//     are the only methods that the server knows; all others, of every service,
//     are forwarded by grpc.UnknownServiceHandler.
//   - A forwarded call and its answer are unchanged: message bytes in both
//     directions of a stream, repeated and binary metadata, headers, trailers,
//     status with details, deadline, cancellation, half-close, gzip and :authority.
//     There is no limit on the size of a message below gRPC's own (2 GiB).
//   - A reader that stalls stalls the driver: of each direction of a stream, one
//     message and gRPC's windows are held here, whatever the stream's length.
//   - An intercepted call is decoded and encoded again: unknown fields survive,
//     the order of fields on the wire may not. It carries the caller's metadata,
//     and the answer carries the driver's. The driver's errors come back as they
//     are.
//   - The socket exists only while a driver stands behind it that has answered
//     Probe and GetPluginInfo; a driver lost later is an UNAVAILABLE to the
//     caller and is connected to again, without a restart of this process.
//   - No secret of a request is logged: what is logged of a message went through
//     csi-lib-utils' protosanitizer.
//
// It does not guarantee:
//
//   - What grpc-go writes itself: user-agent, grpc-accept-encoding, the encoding
//     of the timeout (which shrinks by the time spent here), the padding of
//     base64 in -bin keys, an empty grpc-message.
//   - Other compression than gzip: grpc-go answers UNIMPLEMENTED to it. An answer
//     is compressed as its request was.
//   - Who may connect: the socket may be used by all who reach it. The boundary
//     is the volume that holds it.
package proxy

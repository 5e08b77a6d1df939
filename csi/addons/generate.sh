#!/bin/sh
# Writes the Go code of fencepb and identitypb. It needs protoc (Debian:
# protobuf-compiler and libprotobuf-dev) and the Go module proxy; run it by `go generate ./csi/addons`.
set -eu
cd "$(dirname "$0")"

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
go build -o "$tools/" google.golang.org/protobuf/cmd/protoc-gen-go
GOBIN="$tools" GOFLAGS=-mod=mod go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.1

# csi.proto under the path by which its Go package registers it.
csi=$(go list -m -f '{{.Dir}}' github.com/container-storage-interface/spec)
mkdir "$tools/include"
cp "$csi/csi.proto" "$tools/include/"

root=../..
module=github.com/csi-fencepost/csi-fencepost
PATH="$tools:$PATH" protoc -I "$root" -I "$tools/include" \
	--go_out="$root" --go_opt=module=$module \
	--go_opt=Mcsi.proto=github.com/container-storage-interface/spec/lib/go/csi \
	--go-grpc_out="$root" --go-grpc_opt=module=$module \
	--go-grpc_opt=Mcsi.proto=github.com/container-storage-interface/spec/lib/go/csi \
	csi/addons/fencepb/fence.proto csi/addons/identitypb/identity.proto

# The services' names on the wire are csi-addons' own.
sed -i 's/csifencepost\.addons\.\(fence\|identity\)\./\1./' fencepb/fence_grpc.pb.go identitypb/identity_grpc.pb.go
gofmt -l fencepb identitypb

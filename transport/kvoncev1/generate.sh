#!/bin/sh
# Makes the .pb.go files again. Needs protoc (Debian: protobuf-compiler); the plugins come from go.mod.
set -eu
gen_go=$(go tool -n protoc-gen-go)
gen_grpc=$(go tool -n protoc-gen-go-grpc)
protoc \
	--plugin=protoc-gen-go="$gen_go" --go_out=. --go_opt=paths=source_relative \
	--plugin=protoc-gen-go-grpc="$gen_grpc" --go-grpc_out=. --go-grpc_opt=paths=source_relative \
	kvonce.proto peer.proto

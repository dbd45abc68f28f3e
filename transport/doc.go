// Package transport is the gRPC service that clients dial and the stream layer that raft dials.
package transport

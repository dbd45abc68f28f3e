// Package kvoncev1 is the public protocol of kvonce, generated from the proto files beside it.
package kvoncev1

//go:generate sh generate.sh

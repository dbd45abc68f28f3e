// Package localcluster starts, supervises and stops a cluster of real kvnode processes on this machine.
//
// Each node has one goroutine, its supervisor, that owns the process: it starts it, notices its end, and starts it
// again as the configuration says. Everything else asks the supervisor. A node process holds the read end of a pipe
// as its standard input; when this process dies, however it dies, the pipe ends and the node stops by itself.
package localcluster

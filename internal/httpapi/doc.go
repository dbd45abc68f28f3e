// Package httpapi serves the health and the metrics of a node over HTTP.
package httpapi

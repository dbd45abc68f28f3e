package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version returns the version of the module as the build recorded it, "devel" if it did not.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

func versionText() string {
	return fmt.Sprintf("kvnode %s %s %s/%s", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

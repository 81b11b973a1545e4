package main

import (
	"cmp"
	"fmt"
	"runtime/debug"
)

// built describes this program, in the form of describe.
func built() string {
	info, _ := debug.ReadBuildInfo()
	return describe(info)
}

// describe tells version, revision and Go of a build, a line each; info is nil where the build left
// none.
func describe(info *debug.BuildInfo) string {
	if info == nil {
		info = &debug.BuildInfo{}
	}
	built := map[string]string{}
	for _, s := range info.Settings {
		built[s.Key] = s.Value
	}
	revision := cmp.Or(built["vcs.revision"], "unknown")
	if built["vcs.modified"] == "true" {
		revision += " (modified)"
	}
	return fmt.Sprintf("music    %s\nrevision %s\ngo       %s\n",
		cmp.Or(info.Main.Version, "unknown"), revision, cmp.Or(info.GoVersion, "unknown"))
}

package main

import (
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	here := " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	const commit, at = "29056e4abcdef0123456789", "2026-11-22T07:22:20+00:00"
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "aaaabbbbccccdddd"}, {Key: "vcs.time", Value: "2026-01-02T00:00:00Z"}}
	for _, row := range []struct {
		info  debug.BuildInfo
		stamp string
		want  string
	}{
		{debug.BuildInfo{}, "", "headgate devel"},
		{debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "v0.3.0-4-g29056e4 " + commit + " " + at, "headgate v0.3.0-4-g29056e4 29056e4abcde 2026-11-22"},
		{debug.BuildInfo{}, "29056e4-dirty " + commit + " " + at, "headgate 29056e4-dirty 29056e4abcde 2026-11-22 modified"},
		{debug.BuildInfo{}, "29056e4-dirty", "headgate devel"}, // the stamp is incomplete
		{debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "", "headgate v1.2.3"},
		{debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: vcs}, "v1.2.2 " + commit + " " + at, "headgate v1.2.3 aaaabbbbcccc 2026-01-02"},
	} {
		if got := versionOf(&row.info, row.stamp).String(); got != row.want+here {
			t.Errorf("%q, want %q", got, row.want+here)
		}
	}
}

// make build stamps the binary, even without version control in the toolchain.
func TestBuildIsStamped(t *testing.T) {
	describe := exec.CommandContext(t.Context(), "git", "-C", "../..", "log", "-1", "--format=%H %cI")
	want, err := describe.Output()
	if err != nil {
		t.Skip("this is no clone: ", err)
	}
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip(err)
	}
	out, err := exec.CommandContext(t.Context(), "make", "-C", "../..", "--no-print-directory", "-n", "build").CombinedOutput()
	if err != nil || !strings.Contains(string(out), strings.TrimSpace(string(want))) || !strings.Contains(string(out), "-X \"main.stamp=") {
		t.Errorf("%v:\n%s", err, out)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version describes the binary.
type version struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"commit_time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// stamp is the version, the commit and its time, separated by spaces. make build
// sets it, because the toolchain does not record them everywhere.
var stamp string //nolint:gochecknoglobals // set by the linker, with -X

func newVersion(s streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the version as JSON")
	cmd.RunE = func(*cobra.Command, []string) error {
		v := readVersion()
		if asJSON {
			return json.NewEncoder(s.out).Encode(v)
		}
		_, err := fmt.Fprintln(s.out, v)
		return err
	}
	return cmd
}

// String returns one line, to quote in bug reports.
func (v version) String() string {
	words := []string{"headgate", v.Version}
	if v.Commit != "" {
		words = append(words, v.Commit[:min(len(v.Commit), 12)])
	}
	if day, _, dated := strings.Cut(v.Time, "T"); dated {
		words = append(words, day)
	}
	if v.Modified {
		words = append(words, "modified")
	}
	return strings.Join(append(words, v.Go, v.Platform), " ")
}

func readVersion() version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	return versionOf(info, stamp)
}

// versionOf returns what the toolchain recorded, and otherwise the stamp.
func versionOf(info *debug.BuildInfo, stamp string) version {
	v := version{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if words := strings.Fields(stamp); len(words) == 3 {
		v.Version, v.Commit, v.Time = words[0], words[1], words[2]
		v.Modified = strings.HasSuffix(v.Version, "-dirty")
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// Command packaging builds a release of Headgate: archives, Debian and RPM
// packages, an image for containers, lists of what is in them, checksums and a
// signature. See ../../docs/start/install.md and README.md.
//
// The same commit, version and Go give the same bytes, wherever and whenever they
// are built.
package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var r release
	var platforms, key string
	flags := flag.NewFlagSet("packaging", flag.ContinueOnError)
	flags.StringVar(&r.root, "root", "../..", "folder of Headgate's sources")
	flags.StringVar(&r.version, "version", "", "version to release, such as v0.1.0")
	flags.StringVar(&r.out, "out", "../../bin/release", "folder to write, replaced if it exists")
	flags.StringVar(&key, "key", "", "file of an Ed25519 key to sign with: openssl genpkey -algorithm ed25519")
	flags.StringVar(&platforms, "platforms", "all", `"all", "host", or a list such as linux/amd64,darwin/arm64`)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	var err error
	if r.platforms, err = parsePlatforms(platforms); err != nil {
		return err
	}
	if err := r.checkVersion(); err != nil {
		return err
	}
	if key != "" {
		if r.signing, err = readKey(key); err != nil {
			return err
		}
	}
	if err := r.readCommit(ctx); err != nil {
		return err
	}
	return r.build(ctx)
}

// release is what is built, and where.
type release struct {
	root, out string
	version   string // with a v
	commit    string
	date      time.Time // of the commit; every file has it
	platforms []platform
	signing   ed25519.PrivateKey // or nothing
}

// platform is a system and an architecture, in Go's words.
type platform struct{ system, arch string }

func (p platform) String() string { return p.system + "/" + p.arch }

// all returns the platforms of a release.
func all() []platform {
	return []platform{
		{"linux", "amd64"},
		{"linux", "arm64"},
		{"darwin", "amd64"},
		{"darwin", "arm64"},
		{"windows", "amd64"},
		{"windows", "arm64"},
	}
}

func host() platform { return platform{runtime.GOOS, runtime.GOARCH} }

// parsePlatforms reads the flag --platforms.
func parsePlatforms(text string) ([]platform, error) {
	switch text {
	case "all":
		return all(), nil
	case "host":
		return []platform{host()}, nil
	}
	var list []platform
	seen := map[platform]bool{}
next:
	for name := range strings.SplitSeq(text, ",") {
		for _, p := range all() {
			if p.String() == name && !seen[p] {
				seen[p] = true
				list = append(list, p)
				continue next
			}
		}
		return nil, fmt.Errorf("platform %q: want all, host, or different ones of %s", name, all())
	}
	return list, nil
}

// semver is a version with a v. A part of a pre-release that is a number cannot
// follow a letter without a dot, as Debian would order rc10 as SemVer does not.
func (r *release) checkVersion() error {
	semver := regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(alpha|beta|rc)\.[1-9]\d*)?$`)
	if !semver.MatchString(r.version) {
		return fmt.Errorf("version %q: want one such as v0.1.0 or v0.2.0-rc.1", r.version)
	}
	return nil
}

// bare returns the version without its v.
func (r *release) bare() string { return strings.TrimPrefix(r.version, "v") }

// readCommit takes commit and date from git. It refuses a tree with changes, and one
// that is not what the version's tag names: no one could build that release again. A
// version without a tag may be tried.
func (r *release) readCommit(ctx context.Context) error {
	out, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if out != "" {
		return fmt.Errorf("the tree has changes that are not committed:\n%s", out)
	}
	if out, err = r.git(ctx, "log", "-1", "--format=%H %ct"); err != nil {
		return err
	}
	commit, seconds, _ := strings.Cut(out, " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	r.commit, r.date = commit, time.Unix(unix, 0).UTC()
	tagged, err := r.git(ctx, "for-each-ref", "--format=%(objectname) %(*objectname)", "refs/tags/"+r.version)
	if err != nil {
		return err
	}
	if tagged != "" && !strings.Contains(tagged, commit) {
		return fmt.Errorf("tag %s is on another commit than %s, which is checked out: git checkout %[1]s", r.version, commit[:12])
	}
	return nil
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...) //nolint:gosec // the arguments are ours
	cmd.Dir = r.root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], said(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// said adds what a command wrote to its standard error.
func said(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w:\n%s", err, exit.Stderr)
	}
	return err
}

// build makes the whole release in a folder next to r.out, and then puts it there.
func (r *release) build(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(r.out), 0o755); err != nil { //nolint:gosec // everyone may read a release
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(r.out), ".release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) //nolint:errcheck // what is left is named .release-
	b, err := r.compile(ctx, filepath.Join(work, "build"))
	if err != nil {
		return err
	}
	dist := filepath.Join(work, "release")
	if err := r.assemble(b, dist); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	return os.Rename(dist, r.out)
}

// assemble makes all files of a release from what was compiled. It reads no clock.
func (r *release) assemble(b *built, dist string) error {
	if err := os.MkdirAll(dist, 0o755); err != nil { //nolint:gosec // everyone may read a release
		return err
	}
	steps := []func(*built, string) error{r.archives, r.packages, r.sboms, r.image}
	for _, step := range steps {
		if err := step(b, dist); err != nil {
			return err
		}
	}
	return r.checksums(dist)
}

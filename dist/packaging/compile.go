package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// built is what was compiled, and what is generated with it.
type built struct {
	binaries    map[platform]string // files
	man         map[string][]byte   // by name: headgate.1
	completions map[string][]byte   // by shell
	notices     []byte              // licenses of all that is in the binaries
	license     []byte
	readme      []byte
	changelog   []byte
}

// compile builds the binaries of all platforms into dir. The one of this machine is
// built in any case: it writes the man pages and the completions.
func (r *release) compile(ctx context.Context, dir string) (*built, error) {
	playground := exec.CommandContext(ctx, "bash", "scripts/wasm.sh")
	playground.Dir = r.root
	if out, err := playground.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the playground: %w:\n%s", err, out)
	}
	b := &built{binaries: map[platform]string{}, man: map[string][]byte{}, completions: map[string][]byte{}}
	for _, p := range r.platforms {
		b.binaries[p] = filepath.Join(dir, p.system+"_"+p.arch, "headgate")
		if err := r.compileFor(ctx, p, b.binaries[p]); err != nil {
			return nil, err
		}
	}
	own := b.binaries[host()]
	if own == "" {
		own = filepath.Join(dir, "host", "headgate")
		if err := r.compileFor(ctx, host(), own); err != nil {
			return nil, err
		}
	}
	if err := r.generate(ctx, b, own, filepath.Join(dir, "man")); err != nil {
		return nil, err
	}
	var err error
	if b.notices, err = r.collectNotices(ctx, b); err != nil {
		return nil, err
	}
	for name, to := range map[string]*[]byte{"LICENSE": &b.license, "README.md": &b.readme, "CHANGELOG.md": &b.changelog} {
		if *to, err = os.ReadFile(filepath.Join(r.root, name)); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// compileFor builds one binary. What the toolchain records of version control
// differs between clones, so the stamp names version, commit and date instead.
func (r *release) compileFor(ctx context.Context, p platform, file string) error {
	stamp := fmt.Sprintf("%s %s %s", r.version, r.commit, r.date.Format(time.RFC3339))
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-trimpath", "-buildvcs=false", //nolint:gosec // the arguments are ours
		"-ldflags", fmt.Sprintf(`-s -w -X "main.stamp=%s"`, stamp), "-o", file, "./cmd/headgate")
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.system, "GOARCH="+p.arch, "GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOFIPS140=off", "GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build for %s: %w:\n%s", p, err, out)
	}
	return nil
}

// generate lets the binary write its man pages and completions.
func (r *release) generate(ctx context.Context, b *built, binary, dir string) error {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	man := exec.CommandContext(ctx, binary, "man", dir) //nolint:gosec // our own binary
	man.Env = []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.date.Unix())}
	if _, err := man.Output(); err != nil {
		return fmt.Errorf("man pages: %w", said(err))
	}
	pages, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, page := range pages {
		if b.man[page.Name()], err = os.ReadFile(filepath.Join(dir, page.Name())); err != nil {
			return err
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		out, err := exec.CommandContext(ctx, binary, "completion", shell).Output() //nolint:gosec // our own binary
		if err != nil {
			return fmt.Errorf("completion for %s: %w", shell, said(err))
		}
		b.completions[shell] = out
	}
	return nil
}

// module is a part of a binary.
type module struct{ path, version string }

// modules returns what a binary was built from, without Headgate, and the version
// of Go.
func modules(binary string) (list []module, goVersion string, err error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, "", err
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			return nil, "", fmt.Errorf("%s is replaced by %s: its source cannot be named", m.Path, m.Replace.Path)
		}
		list = append(list, module{m.Path, m.Version})
	}
	return list, info.GoVersion, nil
}

// collectNotices returns the license texts of all modules in the binaries, and
// that of Go.
func (r *release) collectNotices(ctx context.Context, b *built) ([]byte, error) {
	used := map[module]bool{}
	for _, file := range b.binaries {
		list, _, err := modules(file)
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			used[m] = true
		}
	}
	folders, err := r.moduleFolders(ctx)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString("Headgate contains the software below, under these licenses.\n")
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	if err := writeNotice(&out, "Go, https://go.dev", strings.TrimSpace(string(goroot))); err != nil {
		return nil, err
	}
	sorted := []module{}
	for m := range used {
		sorted = append(sorted, m)
	}
	slices.SortFunc(sorted, func(a, b module) int { return strings.Compare(a.path, b.path) })
	for _, m := range sorted {
		if err := writeNotice(&out, m.path+" "+m.version, folders[m]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// moduleFolders returns where the sources of modules are.
func (r *release) moduleFolders(ctx context.Context) (map[module]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-json", "all")
	cmd.Dir = r.root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", said(err))
	}
	folders := map[module]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Version, Dir string }
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return folders, nil
		} else if err != nil {
			return nil, err
		}
		folders[module{m.Path, m.Version}] = m.Dir
	}
}

// writeNotice adds the licenses in a folder. A module without one must not be
// passed on, so that is an error.
func writeNotice(out *bytes.Buffer, title, folder string) error {
	if folder == "" {
		return fmt.Errorf("%s: no sources; run go mod download", title)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	legal := regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice)([-.].*)?$`)
	found := false
	for _, e := range entries {
		if e.IsDir() || !legal.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(out, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("=", 72), title, e.Name(), bytes.TrimSpace(text))
	}
	if !found {
		return fmt.Errorf("%s: no license in %s", title, folder)
	}
	return nil
}

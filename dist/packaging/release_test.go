package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// required fails or skips: in CI (HEADGATE_REQUIRE_PACKAGES) every tool is there.
func required(t *testing.T, lacking string) {
	t.Helper()
	if os.Getenv("HEADGATE_REQUIRE_PACKAGES") != "" {
		t.Fatal(lacking)
	}
	t.Skip(lacking)
}

// tools asks for commands.
func tools(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			required(t, "no "+name+": apt-get install dpkg lintian rpm rpmlint openssl systemd nginx-light")
		}
	}
}

// fixed is the release that tests make: of this tree, at a date of its own.
func fixed(version string) *release {
	return &release{
		root: "../..", version: version, platforms: []platform{host()},
		commit: strings.Repeat("c0ffee00", 5), date: time.Unix(1_780_272_000, 0).UTC(),
	}
}

// compiled is compiled once for all tests.
type compiled struct {
	sync.Mutex
	b         *built
	dir, dist string // of the binary, and of the first release
	newer     string // of the packages of the next
}

var shared compiled

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(shared.dir)
	os.Exit(code)
}

// compile returns what all tests package.
func compile(t *testing.T) *built {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.b == nil {
		var err error
		if shared.dir, err = os.MkdirTemp("", "headgate-packaging-"); err != nil {
			t.Fatal(err)
		}
		if shared.b, err = fixed("v0.1.0").compile(t.Context(), filepath.Join(shared.dir, "build")); err != nil {
			t.Fatal(err)
		}
	}
	return shared.b
}

// made returns the release that tests look at.
func made(t *testing.T) string {
	t.Helper()
	b := compile(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.dist == "" {
		dist := filepath.Join(shared.dir, "release")
		if err := fixed("v0.1.0").assemble(b, dist); err != nil {
			t.Fatal(err)
		}
		shared.dist = dist
	}
	return shared.dist
}

// digests returns the checksums file, which names every other file.
func digests(t *testing.T, dist string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dist, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// only returns the one file that matches.
func only(t *testing.T, dist, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dist, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %s: %q, %v", pattern, dist, found, err)
	}
	return found[0]
}

// output runs a command that must succeed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// The same inputs give the same bytes: every file is made twice, a second apart.
func TestTwiceTheSame(t *testing.T) {
	first := digests(t, made(t))
	again := t.TempDir()
	for began := time.Now().Unix(); time.Now().Unix() == began; {
		runtime.Gosched() // formats count seconds
	}
	if err := fixed("v0.1.0").assemble(compile(t), again); err != nil {
		t.Fatal(err)
	}
	if second := digests(t, again); second != first {
		t.Errorf("first:\n%s\nsecond:\n%s", first, second)
	}
	for _, want := range []string{".tar.gz\n", ".deb\n", ".rpm\n", ".spdx.json\n", "_image.tar\n", "image/index.json\n"} {
		if !strings.Contains(first, want) {
			t.Errorf("no %q in\n%s", want, first)
		}
	}
}

// mostBytes is how large a binary may be. One that can reach text/template, through cobra,
// html/template or golang.org/x/net/trace, keeps every exported method and has 43 MB.
const mostBytes = 30_000_000

// The binary is static and light, has the playground, and says which release it is.
func TestBinary(t *testing.T) {
	dir := t.TempDir()
	archive := only(t, made(t), "*.tar.gz")
	files := unpack(t, archive, dir)
	name := strings.TrimSuffix(filepath.Base(archive), ".tar.gz")
	binary := filepath.Join(dir, name, "headgate")
	for _, args := range [][]string{{"version"}, {"--version"}} {
		if got, want := output(t, binary, args...), "headgate v0.1.0 c0ffee00c0ff 2026-06-01 "+runtime.Version()+" "+host().String()+"\n"; !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if n := len(files[name+"/headgate"]); n > mostBytes || !bytes.Contains(files[name+"/headgate"], []byte("headgate.wasm.gz")) {
		t.Errorf("%d bytes, want at most %d with the playground", n, mostBytes)
	}
	if runtime.GOOS == "linux" {
		f, err := elf.Open(binary)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:errcheck // only read
		if libraries, err := f.ImportedLibraries(); err == nil && len(libraries) > 0 {
			t.Errorf("needs %q", libraries)
		}
	}
	for _, want := range []string{"LICENSE", "NOTICES.txt", "README.md", "CHANGELOG.md", "completions/headgate.bash", "completions/_headgate", "completions/headgate.ps1", "man/man1/headgate-serve.1"} {
		if len(files[name+"/"+want]) < 100 {
			t.Errorf("%s has %d bytes", want, len(files[name+"/"+want]))
		}
	}
	notices := string(files[name+"/NOTICES.txt"])
	for _, want := range []string{"google.golang.org/grpc v", "Go, https://go.dev: LICENSE"} {
		if !strings.Contains(notices, want) {
			t.Errorf("NOTICES.txt does not name %s", want)
		}
	}
}

// unpack writes a tar file, perhaps compressed, to a folder, and returns what is
// in it.
func unpack(t *testing.T, archive, dir string) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	var in io.Reader = bytes.NewReader(data)
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		if in, err = gzip.NewReader(in); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string][]byte{}
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(to, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		text, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(to, text, h.FileInfo().Mode())
		}
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = text
	}
}

// openssl, which every Debian has, agrees with the signature, and sees a change.
func TestSignature(t *testing.T) {
	tools(t, "openssl", "sha256sum")
	dist, dir := t.TempDir(), t.TempDir()
	if err := os.CopyFS(dist, os.DirFS(made(t))); err != nil {
		t.Fatal(err)
	}
	key, other := filepath.Join(dir, "key.pem"), filepath.Join(dir, "rsa.pem")
	output(t, "openssl", "genpkey", "-algorithm", "ed25519", "-out", key)
	r, err := fixed("v0.1.0"), error(nil)
	if r.signing, err = readKey(key); err != nil {
		t.Fatal(err)
	}
	if err := r.sign(dist, []byte(digests(t, dist))); err != nil {
		t.Fatal(err)
	}
	verify := func() error {
		cmd := exec.CommandContext(t.Context(), "openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "headgate.pub", "-rawin", "-in", "checksums.txt", "-sigfile", "checksums.txt.sig")
		cmd.Dir = dist
		return cmd.Run()
	}
	if err := verify(); err != nil {
		t.Error(err)
	}
	sums := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "checksums.txt")
	sums.Dir = dist
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dist, "checksums.txt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if verify() == nil {
		t.Error("openssl accepts a changed file")
	}
	output(t, "openssl", "genpkey", "-algorithm", "ed448", "-out", other)
	for _, file := range []string{other, "main.go", filepath.Join(dir, "none")} {
		if _, err := readKey(file); err == nil {
			t.Errorf("%s is taken as a key", file)
		}
	}
}

// The list of parts names every module, and is what SPDX 2.3 asks for.
func TestParts(t *testing.T) {
	text, err := os.ReadFile(only(t, made(t), "*.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc spdx
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Version != "SPDX-2.3" || doc.License != "CC0-1.0" || doc.Creation.Created != "2026-06-01T00:00:00Z" {
		t.Errorf("%+v", doc.Creation)
	}
	ids := map[string]bool{doc.ID: true}
	purls := map[string]bool{}
	for _, p := range doc.Packages {
		if ids[p.ID] {
			t.Errorf("%s: duplicate", p.ID)
		}
		ids[p.ID] = true
		purls[p.Refs[0].Locator] = true
	}
	for _, r := range doc.Relationships {
		if !ids[r.From] || !ids[r.To] {
			t.Errorf("%+v names what is not there", r)
		}
	}
	list, _, err := modules(compile(t).binaries[host()])
	if err != nil || len(list) < 10 {
		t.Fatal(list, err)
	}
	for _, m := range append(list, module{"github.com/headgate/headgate", "v0.1.0"}, module{"stdlib", strings.TrimPrefix(runtime.Version(), "go")}) {
		if purl := "pkg:golang/" + m.path + "@" + strings.ReplaceAll(m.version, "+", "%2B"); !purls[purl] {
			t.Errorf("no %s", purl)
		}
	}
}

// Wrong input is refused before anything is built.
func TestWrongInput(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{}, `version "": want one such as v0.1.0`},
		{[]string{"--version", "0.1.0"}, `version "0.1.0": want one such as v0.1.0`},
		{[]string{"--version", "v1.0.0-rc1"}, `or v0.2.0-rc.1`},
		{[]string{"--version", "v01.0.0"}, `version "v01.0.0"`},
		{[]string{"--version", "v0.1.0", "--platforms", "linux/riscv64"}, `platform "linux/riscv64": want all, host`},
		{[]string{"--version", "v0.1.0", "--platforms", "linux/amd64,linux/amd64"}, `platform "linux/amd64": want all, host, or different ones`},
		{[]string{"--version", "v0.1.0", "linux/amd64"}, `unexpected argument "linux/amd64"`},
		{[]string{"--version", "v0.1.0", "--root", t.TempDir()}, `git status`},
		{[]string{"--version", "v0.1.0", "--key", "main.go"}, `main.go: not a private key`},
	} {
		args := append([]string{"--out", filepath.Join(t.TempDir(), "out")}, c.args...)
		if err := run(t.Context(), args); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
}

// A tree with changes cannot be released: nobody could build it again.
func TestOnlyCommits(t *testing.T) {
	tools(t, "git")
	dir := t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "x"}} {
		output(t, "git", append([]string{"-C", dir}, args...)...)
	}
	r := &release{root: dir, version: "v0.1.0"}
	if err := r.readCommit(t.Context()); err != nil || len(r.commit) != 40 || r.date.IsZero() {
		t.Fatal(r, err)
	}
	again := func(message string) {
		output(t, "git", "-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", message)
	}
	for i, tag := range [][]string{{"tag", "v0.1.0"}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "tag", "-a", "-m", "x", "v0.2.0"}} {
		output(t, "git", append([]string{"-C", dir}, tag...)...)
		r.version = tag[len(tag)-1]
		if err := r.readCommit(t.Context()); err != nil {
			t.Errorf("%s: %v", r.version, err)
		}
		again(strconv.Itoa(i))
		if err := r.readCommit(t.Context()); err == nil || !strings.Contains(err.Error(), "tag "+r.version+" is on another commit") {
			t.Errorf("%v, want that the tag is elsewhere", err)
		}
	}
	r.version = "v0.3.0"
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.readCommit(context.Background()); err == nil || !strings.Contains(err.Error(), "?? new") {
		t.Errorf("%v, want the changes", err)
	}
}

// Debian's and RPM's own checkers have nothing to say.
func TestPackagesAreClean(t *testing.T) {
	tools(t, "lintian", "rpm", "rpmlint")
	dist := made(t)
	lint := exec.CommandContext(t.Context(), "lintian", "--profile", "debian", "--allow-root", "--fail-on", "error,warning", "--info", only(t, dist, "*.deb"))
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("lintian: %v\n%s", err, out)
	}
	keepInFolder(t)
	_, absent := os.Stat("/usr/share/licenses/headgate")
	if out := output(t, "rpmlint", "--config", "rpmlint.toml", only(t, dist, "*.rpm")); !strings.Contains(out, "0 errors, 0 warnings") {
		t.Errorf("rpmlint:\n%s", out)
	}
	rpm := only(t, dist, "*.rpm")
	if got := output(t, "rpm", "-qp", "--queryformat", "%{NAME} %{VERSION} %{RELEASE} %{LICENSE} %{BUILDHOST} %{BUILDTIME}", rpm); got != "headgate 0.1.0 1 Apache-2.0 headgate 1780272000" {
		t.Error(got)
	}
	if _, err := os.Stat("/usr/share/licenses/headgate"); err == nil && absent != nil {
		t.Error("the package was unpacked into this machine")
	}
	if got := output(t, "rpm", "-qp", "--configfiles", rpm); got != "/etc/headgate/headgate.yaml\n/etc/headgate/rules/rules.yaml\n" {
		t.Error(got)
	}
}

// keepInFolder makes cpio write below its folder. rpmlint unpacks packages by it, and
// those that rpmpack makes have absolute names: it would install Headgate here.
func keepInFolder(t *testing.T) {
	t.Helper()
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		required(t, "no cpio: apt-get install cpio")
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "cpio"), []byte("#!/bin/sh\nexec "+cpio+" --no-absolute-filenames \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
}

// The unit is valid, and lets the service do little: 10 is everything, 0 nothing.
func TestUnit(t *testing.T) {
	tools(t, "systemd-analyze")
	if out := output(t, "systemd-analyze", "security", "--offline=true", "--threshold=20", "files/headgate.service"); !strings.Contains(out, "Overall exposure level") {
		t.Error(out)
	}
	text, err := os.ReadFile("files/headgate.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range regexp.MustCompile(`(?m)^Exec\w+=(\S+)`).FindAllSubmatch(text, -1) {
		if program := string(run[1]); program != "/usr/bin/headgate" && program != "/bin/sh" {
			t.Errorf("the service runs %s, which is not in every system", program)
		}
	}
	folder := t.TempDir()
	unit, edited := filepath.Join(folder, "headgate.service"), filepath.Join(folder, "headgate.service.d", "override.conf")
	if err := os.WriteFile(unit, bytes.ReplaceAll(text, []byte("/usr/bin/headgate"), []byte("/bin/true")), fs.FileMode(0o600)); err != nil { // a program that is there
		t.Fatal(err)
	}
	if out := output(t, "systemd-analyze", "verify", "--man=no", unit); out != "" {
		t.Error(out)
	}
	// So are the exceptions in the docs.
	page, err := os.ReadFile("../../docs/start/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, exceptions, _ := strings.Cut(string(page), "```ini\n")
	exceptions, _, _ = strings.Cut(exceptions, "```")
	if err := os.Mkdir(filepath.Dir(edited), 0o700); err != nil {
		t.Fatal(err)
	}
	for wrong, want := range map[string]string{"": "", "LoadCredentials=a:/b\n": "'LoadCredentials'"} {
		if err := os.WriteFile(edited, []byte(exceptions+wrong), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := output(t, "systemd-analyze", "verify", "--man=no", unit); !strings.Contains(out, want) || wrong == "" && out != "" || len(exceptions) < 100 {
			t.Errorf("%s%s: %s, want %q", exceptions, wrong, out, want)
		}
	}
}

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The RPM package is installed in a folder, limits, is upgraded with its counts and
// settings, and takes its files when it is removed. Its scripts need a shell in the
// folder and are left out.
func TestRPMPackage(t *testing.T) {
	asRoot(t)
	tools(t, "rpm")
	root, next := t.TempDir(), newer(t)
	chmod(t, root)
	rpm := func(args ...string) string {
		t.Helper()
		return output(t, "rpm", append([]string{"--root", root, "--dbpath", "/rpmdb"}, args...)...)
	}
	rpm("--initdb")
	rpm("--install", "--noscripts", "--nodeps", only(t, made(t), "*.rpm"))
	stateFolder(t, root)
	settings := filepath.Join(root, "etc/headgate/headgate.yaml")
	own := read(t, settings) + "\n# ours\n"
	write(t, settings, own)

	s := serve(t, root)
	for want := 4; want >= 2; want-- {
		if allowed, left := s.login(t); !allowed || left != want {
			t.Errorf("%t, %d left, want %d", allowed, left, want)
		}
	}
	s.stop(t)
	rpm("--upgrade", "--noscripts", "--nodeps", only(t, next, "*.rpm"))
	if got := rpm("--query", "--queryformat", "%{VERSION}-%{RELEASE}", "headgate"); got != "0.1.1-1" {
		t.Errorf("version %q is installed", got)
	}
	if read(t, settings) != own {
		t.Error("the upgrade changed the settings")
	}
	s = serve(t, root)
	if _, left := s.login(t); left < 1 || left > 2 { // a token comes back every 12 s
		t.Errorf("%d left after the upgrade, want the counts from before", left)
	}
	s.stop(t)

	rpm("--erase", "--noscripts", "headgate")
	if read(t, settings+".rpmsave") != own {
		t.Error("the changed settings are not kept")
	}
	for _, kept := range []string{settings + ".rpmsave", filepath.Dir(settings)} { // and nothing else is in the folder
		if err := os.Remove(kept); err != nil {
			t.Error(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(root, "var/lib/headgate")); err != nil { // made by the service
		t.Error(err)
	}
	nothingLeft(t, root, "rpmdb")
}

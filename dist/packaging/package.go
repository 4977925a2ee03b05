package main

import (
	"bytes"
	"embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // packagers, found by name
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

//go:embed files
var packaged embed.FS

// packages writes a Debian and an RPM package for every Linux platform.
func (r *release) packages(b *built, dist string) error {
	for _, p := range r.platforms {
		if p.system != "linux" {
			continue
		}
		for _, format := range []string{"deb", "rpm"} {
			if err := r.pack(b, p, format, dist); err != nil {
				return fmt.Errorf("%s for %s: %w", format, p, err)
			}
		}
	}
	return nil
}

// pack writes one package. nfpm reads files, so they are put into a folder first.
func (r *release) pack(b *built, p platform, format, dist string) error {
	stage, err := os.MkdirTemp("", "headgate-package-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage) //nolint:errcheck // in the folder for such files
	s := &staging{dir: stage, format: format, release: r}
	contents, err := s.contents(b, p)
	if err != nil {
		return err
	}
	scripts, err := s.scripts()
	if err != nil {
		return err
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "headgate", Arch: p.arch, Platform: "linux", Version: r.version, Release: "1",
		Section: "net", Priority: "optional",
		Maintainer:  "Headgate maintainers <maintainers@users.noreply.github.com>",
		Vendor:      "Headgate",
		Homepage:    "https://github.com/headgate/headgate",
		Description: description, MTime: r.date, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Contents: contents, Scripts: scripts, Umask: 0o022,
			Suggests: []string{"redis-server"},
			Deb:      nfpm.Deb{Compression: "gzip", Predepends: []string{"init-system-helpers (>= 1.54~)"}},
			RPM:      nfpm.RPM{BuildHost: "headgate", Summary: "Exact rate limiter for HTTP and gRPC", Group: "System Environment/Daemons", Compression: "gzip:6", Packager: "Headgate maintainers"},
		},
	})
	if format == "rpm" {
		if info.Changelog, err = s.history(); err != nil {
			return err
		}
		info.License = "Apache-2.0" // Debian's is in the file copyright
		info.Suggests = []string{"redis"}
		info.Depends = []string{"/bin/sh"} // for the scripts
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		return err
	}
	// GitHub renames files with a tilde, and checksums.txt would name none of them.
	name := strings.ReplaceAll(packager.ConventionalFileName(info), "~", "-")
	return save(filepath.Join(dist, name), out.Bytes())
}

const description = `exact rate limiter for HTTP and gRPC
Headgate decides for every request whether it is allowed and, if not, when to
retry. It answers nginx, Traefik, Caddy and Envoy, runs as a reverse proxy, and
has an API over HTTP, gRPC and the Redis protocol. Counts are kept in memory or
in Redis.`

// staging is the folder that a package is made from.
type staging struct {
	dir, format string
	release     *release
	list        files.Contents
}

// contents stages all files of a package.
func (s *staging) contents(b *built, p platform) (files.Contents, error) {
	binary, err := os.ReadFile(b.binaries[p])
	if err != nil {
		return nil, err
	}
	zsh := "/usr/share/zsh/vendor-completions/_headgate"
	manual := files.TypeFile
	if s.format == "rpm" {
		manual = files.TypeRPMDoc
		zsh = "/usr/share/zsh/site-functions/_headgate"
	}
	err = s.add("/usr/bin/headgate", files.TypeFile, 0o755, binary)
	for shell, to := range map[string]string{"bash": "/usr/share/bash-completion/completions/headgate", "zsh": zsh, "fish": "/usr/share/fish/vendor_completions.d/headgate.fish"} {
		err = firstOf(err, s.add(to, files.TypeFile, 0o644, b.completions[shell]))
	}
	for _, page := range slices.Sorted(maps.Keys(b.man)) {
		err = firstOf(err, s.addGzipped("/usr/share/man/man1/"+page+".gz", manual, b.man[page]))
	}
	for from, to := range map[string]string{"headgate.yaml": "/etc/headgate/headgate.yaml", "rules.yaml": "/etc/headgate/rules/rules.yaml"} {
		err = firstOf(err, s.addOwn(from, to, files.TypeConfigNoReplace))
	}
	err = firstOf(err, s.addOwn("headgate.service", "/usr/lib/systemd/system/headgate.service", files.TypeFile))
	if s.format == "rpm" {
		// rpm removes only folders that it has been told of.
		for _, folder := range []string{"/etc/headgate", "/etc/headgate/rules", "/usr/share/doc/headgate", "/usr/share/licenses/headgate"} {
			s.list = append(s.list, &files.Content{
				Destination: folder, Type: files.TypeDir,
				FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o755, MTime: s.release.date},
			})
		}
		err = firstOf(err,
			s.add("/usr/share/licenses/headgate/LICENSE", files.TypeRPMLicense, 0o644, b.license),
			s.add("/usr/share/licenses/headgate/NOTICES.txt", files.TypeRPMLicense, 0o644, b.notices),
			s.add("/usr/share/doc/headgate/README.md", files.TypeRPMDoc, 0o644, b.readme),
			s.add("/usr/share/doc/headgate/CHANGELOG.md", files.TypeRPMDoc, 0o644, b.changelog))
		return s.list, err
	}
	history := fmt.Sprintf("headgate (%s-1) unstable; urgency=medium\n\n  * Release %s. See changelog.gz for what is new.\n\n -- Headgate maintainers <maintainers@users.noreply.github.com>  %s\n",
		strings.ReplaceAll(s.release.bare(), "-", "~"), s.release.version, s.release.date.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	err = firstOf(err,
		s.addOwn("copyright", "/usr/share/doc/headgate/copyright", files.TypeFile),
		s.addOwn("lintian-overrides", "/usr/share/lintian/overrides/headgate", files.TypeFile),
		s.addGzipped("/usr/share/doc/headgate/changelog.Debian.gz", files.TypeFile, []byte(history)),
		s.addGzipped("/usr/share/doc/headgate/NOTICES.txt.gz", files.TypeFile, b.notices),
		s.addGzipped("/usr/share/doc/headgate/changelog.gz", files.TypeFile, b.changelog))
	return s.list, err
}

// firstOf returns the first error.
func firstOf(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// add stages a file for the path to.
func (s *staging) add(to, kind string, mode os.FileMode, data []byte) error {
	from := filepath.Join(s.dir, filepath.FromSlash(to))
	if err := os.MkdirAll(filepath.Dir(from), 0o750); err != nil {
		return err
	}
	if err := save(from, data); err != nil {
		return err
	}
	s.list = append(s.list, &files.Content{
		Source: from, Destination: to, Type: kind,
		FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: s.release.date},
	})
	return nil
}

// addGzipped stages a file compressed, as Debian wants pages of manuals.
func (s *staging) addGzipped(to, kind string, data []byte) error {
	data, err := gzipped(data)
	if err != nil {
		return err
	}
	return s.add(to, kind, 0o644, data)
}

// addOwn stages a file of the folder files.
func (s *staging) addOwn(from, to, kind string) error {
	data, err := packaged.ReadFile("files/" + from)
	if err != nil {
		return err
	}
	return s.add(to, kind, 0o644, data)
}

// history stages the list of changes that RPM packages have in their head.
func (s *staging) history() (string, error) {
	text := fmt.Sprintf("- semver: %s-1\n  date: %s\n  packager: Headgate maintainers <maintainers@users.noreply.github.com>\n  changes:\n    - note: Release %s. See CHANGELOG.md.\n",
		s.release.bare(), s.release.date.Format("2006-01-02T15:04:05Z07:00"), s.release.version)
	path := filepath.Join(s.dir, "history.yaml")
	return path, save(path, []byte(text))
}

// scripts stages the scripts that run when the package is installed and removed.
func (s *staging) scripts() (nfpm.Scripts, error) {
	var all nfpm.Scripts
	for name, to := range map[string]*string{"postinst": &all.PostInstall, "prerm": &all.PreRemove, "postrm": &all.PostRemove} {
		data, err := packaged.ReadFile("files/" + s.format + "/" + name)
		if err != nil {
			return all, err
		}
		*to = filepath.Join(s.dir, name)
		if err := save(*to, data); err != nil {
			return all, err
		}
	}
	return all, nil
}

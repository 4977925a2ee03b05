package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/transport/certs"
)

// certificates examines whether the doors and the proxy can use their certificates.
func (i *Installation) certificates(c *config.Config) (all []Finding) {
	wrong := func(section string, err error) {
		if err != nil {
			all = append(all, Finding{"files", Fail, section + "." + err.Error(), "the server does not start", "name PEM files that the user of the server can read"})
		}
	}
	for _, s := range i.Sources.Doors {
		d := c.Door(s.Name)
		if !d.Open() || !d.TLS.Enabled() {
			continue
		}
		_, err := certs.Load(certs.Files{Cert: d.TLS.Cert, Key: d.TLS.Key, ClientCA: d.TLS.ClientCA, ClientNames: d.TLS.ClientNames}, certs.Options{Logger: slog.New(slog.DiscardHandler)})
		wrong(s.Name+".tls", err)
	}
	if own := config.Own[proxy.Settings](c); own.UpstreamTLS != (certs.ClientFiles{}) && c.Door("proxy").Open() {
		_, err := own.UpstreamTLS.Load()
		wrong("proxy.upstream_tls", err)
	}
	return all
}

// secretFiles examines who can read or write the files of the server.
func secretFiles(c *config.Config, doors []config.Section) (all []Finding) {
	type secret struct{ key, name string }
	files := []secret{
		{"store.memory.snapshot", c.Store.Memory.Snapshot},
		{"queue.path", c.Queue.Path},
		{"store.redis.tls_key", c.Store.Redis.Key},
		{"proxy.upstream_tls.key", config.Own[proxy.Settings](c).UpstreamTLS.Key},
	}
	for _, s := range doors {
		files = append(files, secret{s.Name + ".tls.key", c.Door(s.Name).TLS.Key})
	}
	for _, f := range files {
		info, err := os.Stat(f.name)
		if f.name != "" && err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o007 != 0 {
			all = append(all, Finding{"files", Warn, fmt.Sprintf("%s: every user on this machine can use %s", f.key, f.name), "it has keys of callers, or a private key", "run chmod o-rwx"})
		}
	}
	open := func(path string, info fs.FileInfo) {
		if info.Mode().Perm()&0o002 != 0 {
			all = append(all, Finding{"files", Warn, "every user on this machine can write " + path, "who can write rules can lift every limit", "run chmod o-w"})
		}
	}
	for _, path := range c.Rules {
		if info, err := os.Stat(path); err == nil {
			open(path, info)
		}
		within, _ := os.ReadDir(path) // none, if it is a file
		for _, entry := range within {
			if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
				open(filepath.Join(path, entry.Name()), info)
			}
		}
	}
	return all
}

// writable examines whether the files that the server writes can be made.
func writable(c *config.Config) (all []Finding) {
	const do = "name a file in an existing, writable folder"
	if path := c.Store.Memory.Snapshot; path != "" && c.Store.Kind == config.InMemory {
		all = append(all, folderOf("files", "store.memory.snapshot", path, "counts cannot be saved: the server does not start", do)...)
	}
	if path := c.Queue.Path; path != "" {
		all = append(all, folderOf("files", "queue.path", path, "requests cannot be queued", do)...)
	}
	return all
}

// folderOf returns a finding if this user cannot write the folder of a file.
func folderOf(check, key, path, why, do string) []Finding {
	name := filepath.Dir(path)
	info, err := os.Stat(name)
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a folder")
	} else if err == nil {
		err = writableFolder(name)
	}
	if err == nil {
		return nil
	}
	if wrong, ok := errors.AsType[*fs.PathError](err); ok {
		err = wrong.Err
	}
	return []Finding{{check, Fail, fmt.Sprintf("%s: cannot write in %s: %s", key, name, err), why, do}}
}

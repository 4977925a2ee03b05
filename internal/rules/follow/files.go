package follow

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"

	"github.com/headgate/headgate/internal/base/regular"
	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/internal/rules/yamltext"
)

// Files are rule files and folders to follow.
type Files struct {
	Paths   []string
	Options rulefile.Options
}

// subscribe watches exactly the folders in which a change may change the rules. Folders
// that cannot be watched are polled. The result reports whether a name from the watcher
// may be a rule file.
func (r Files) subscribe(watcher *fsnotify.Watcher) func(name string) bool {
	wanted := folders{}
	for _, path := range slices.Concat(r.Options.Expand(r.Paths...), r.Paths, r.Options.Tables.Paths()) {
		wanted.addPath(path)
	}
	for _, name := range watcher.WatchList() {
		if !wanted[name] {
			_ = watcher.Remove(name) // it may be gone already
		}
	}
	for name := range wanted {
		_ = watcher.Add(name)
	}
	return r.Places()
}

// Places returns a function that reports whether a file, with its folder's real path,
// may be a rule file.
func (r Files) Places() func(name string) bool {
	files, trees := map[string]bool{}, []string{}
	var siblings []string
	for _, path := range slices.Concat(r.Options.Expand(r.Paths...), r.Paths, r.Options.Tables.Paths()) {
		path, err := filepath.Abs(path)
		if err != nil {
			continue
		}
		// Where it lies, or will lie, and what it leads to.
		if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			files[filepath.Join(dir, filepath.Base(path))] = true
			if r.Options.Siblings {
				siblings = append(siblings, filepath.Join(dir, filepath.Base(path))+".")
			}
		}
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		files[real] = true
		r.walk(real, func(name string) {
			if target, err := filepath.EvalSymlinks(name); err == nil {
				files[target] = true // of a link in a folder
			}
		})
		trees = append(trees, real+string(filepath.Separator))
	}
	return func(name string) bool {
		within := func(tree string) bool { return strings.HasPrefix(name, tree) }
		return files[name] || slices.ContainsFunc(siblings, within) || r.isRule(name) && slices.ContainsFunc(trees, within)
	}
}

// isRule reports whether a file in a folder is a rule file, by its name.
func (r Files) isRule(name string) bool {
	base, envoy := filepath.Base(name), r.Options.Compat == rules.CompatEnvoy
	switch {
	case strings.HasPrefix(base, ".."), rulefile.IsTest(base):
		return false
	case strings.HasPrefix(base, "."):
		return envoy && !r.Options.IgnoreDotFiles
	}
	ext := filepath.Ext(base)
	return envoy || ext == ".yaml" || ext == ".yml"
}

// walk calls f with the rule files of a folder, and with an empty name for a
// folder that is not there.
func (r Files) walk(path string, f func(name string)) {
	_ = filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			f("")
		case e.IsDir() && name != path && strings.HasPrefix(e.Name(), "."):
			return filepath.SkipDir
		case !e.IsDir() && r.isRule(name):
			f(name)
		}
		return nil
	})
}

// folders are the real paths of folders to watch.
type folders map[string]bool

// add adds the folder that name leads to, and reports whether there is one.
func (f folders) add(name string) bool {
	real, err := filepath.EvalSymlinks(name)
	if err == nil {
		f[real] = true
	}
	return err == nil
}

// addPath adds the folders to watch for a file or folder of rules: itself and its
// subfolders, its parent, even if it does not exist yet, and the folders of symlinks on
// the way to it.
func (f folders) addPath(path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if f.add(dir) || dir == filepath.Dir(dir) {
			break // the nearest that is there
		}
	}
	for p := path; p != filepath.Dir(p); p = filepath.Dir(p) {
		f.addLink(p)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return
	}
	_ = filepath.WalkDir(real, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // removed; a change in its parent shows when it is back
		case e.IsDir() && name != real && strings.HasPrefix(e.Name(), "."):
			return filepath.SkipDir
		case e.IsDir():
			f[name] = true
		case name == real:
			f[filepath.Dir(name)] = true
		default:
			f.addLink(name)
		}
		return nil
	})
}

// addLink adds, if name is a symlink, its folder and the folder of its target.
func (f folders) addLink(name string) {
	target, err := os.Readlink(name)
	if err != nil {
		return // not a link
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(name), target)
	}
	f.add(filepath.Dir(name))
	f.add(filepath.Dir(target))
}

// Changed reports whether the rule files have another fingerprint than seen, or a table is
// not as it was when the rules were read.
func (r Files) Changed(seen [32]byte) bool {
	return r.Fingerprint() != seen || r.Options.Tables.Changed()
}

// Loaded is a fingerprint of what was read: of rule files with the fingerprint seen, and
// their tables.
func (r Files) Loaded(seen [32]byte) [32]byte {
	tables := r.Options.Tables.Loaded()
	return sha256.Sum256(append(seen[:], tables[:]...))
}

// current is a fingerprint of the rule files and their tables, as they are now.
func (r Files) current() [32]byte {
	files, tables := r.Fingerprint(), r.Options.Tables.Fingerprint()
	return sha256.Sum256(append(files[:], tables[:]...))
}

// Fingerprint is a hash of the names and contents of all rule files, without the tables
// that they name.
func (r Files) Fingerprint() [32]byte {
	h := sha256.New()
	for _, path := range r.Options.Expand(r.Paths...) {
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() {
			hashFile(h, path)
			continue
		}
		// With a separator at its end, what a symlink leads to is walked.
		r.walk(path+string(filepath.Separator), func(name string) {
			if name == "" {
				_, _ = io.WriteString(h, "gone\x00")
				return
			}
			hashFile(h, name)
		})
	}
	return [32]byte(h.Sum(nil))
}

// hashFile adds a file to a hash, whose Write never fails.
func hashFile(h io.Writer, name string) {
	_, _ = io.WriteString(h, name+"\x00")
	content := sha256.New()
	size := int64(-1) // of a file that cannot be read
	if f, err := regular.Open(name); err == nil {
		size, err = io.Copy(content, io.LimitReader(f, yamltext.MaxFileSize+1))
		if err != nil {
			size = -1
		}
		_ = f.Close() // it was only read
	}
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(size)))
	_, _ = h.Write(content.Sum(nil))
}

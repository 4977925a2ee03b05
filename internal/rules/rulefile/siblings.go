package rulefile

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/internal/rules"
)

// Expand returns the paths that Load reads for these: with Siblings also those
// beside them, and a folder that is not there only if nothing is beside it.
func (o Options) Expand(paths ...string) []string {
	if !o.Siblings {
		return paths
	}
	var all []string
	for _, path := range paths {
		siblings := o.siblings(path)
		if _, err := os.Stat(path); err == nil || len(siblings) == 0 {
			all = append(all, path)
		}
		all = append(all, siblings...)
	}
	return all
}

// siblings returns what lies beside path and has its name and a dot in front:
// folders, but no links to folders, and rule files.
func (o Options) siblings(path string) (list []string) {
	dir, base := filepath.Split(filepath.Clean(path))
	entries, err := os.ReadDir(filepath.Join(dir, "."))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if !strings.HasPrefix(e.Name(), base+".") || o.IgnoreDotFiles && strings.HasPrefix(base, ".") {
			continue
		}
		isFile := !e.IsDir()
		if e.Type()&fs.ModeSymlink != 0 {
			info, err := os.Stat(name)
			if err != nil || info.IsDir() {
				continue
			}
		}
		if isFile && (IsTest(name) || o.Compat != rules.CompatEnvoy && !isRuleFile(name)) {
			continue
		}
		list = append(list, name)
	}
	return list
}

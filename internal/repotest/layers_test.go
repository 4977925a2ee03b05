package repotest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/headgate/headgate"

// layers is the architecture: a package may import only packages in a lower
// layer, never a sibling. The longest matching prefix wins; one with a slash at
// its end is for the folders below alone. Test files are
// exempt, so that a test may use any store or the conformance suite.
var layers = map[string]int{
	"store":       -1, // what stores and their callers say to each other
	".":           0,  // the page of users
	"algorithm":   1,  // pure steps
	"api":         0,  // the messages of gRPC
	"docs":        0,  // files that the program prints
	"store/":      2,  // each folder a store, and the suite they pass
	"middleware/": 7,  // each folder a framework or protocol
	"rulefiles":   10, // the server's rules in a Go program
	"cmd":         14,
	"examples":    14,
	"web/wasm":    14, // what the browser runs

	"internal/base":           0,  // imports none of the others: files, texts, the clock
	"internal/base/plain":     -2, // texts without fmt
	"internal/base/fastclock": 1,  // the clock, in nanoseconds

	"internal/rules":             2, // what applies to a request
	"internal/rules/body":        1, // the texts that rules answer with
	"internal/rules/soft":        1, // when a limit marks instead of refusing
	"internal/rules/rate":        1, // how much of a limit
	"internal/rules/form":        2, // mappings by tables of their keys
	"internal/rules/yamltext":    1, // YAML with positions
	"internal/rules/keytable":    1, // millions of keys, each with a small number
	"internal/rules/prefixtable": 1, // millions of IP prefixes
	"internal/rules/listfile":    1, // lists, one entry a line
	"internal/rules/zone":        1, // the time zones that requests may name
	"internal/rules/tablefile":   2, // CSV, JSON and YAML, row by row
	"internal/rules/feature":     3, // what the rest knows of a feature
	"internal/rules/features/":   4, // each folder a feature: all of it
	"internal/rules/features":    5, // the list of them
	"internal/rules/ownform":     6, // Headgate's own form of rules
	"internal/rules/envoyform":   7, // descriptors
	"internal/rules/inline":      7, // limits that come with a request
	"internal/rules/rulefile":    8, // files of either
	"internal/rules/schema":      9, // JSON Schemas for editors
	"internal/rules/follow":      9, // notices that rule files have changed
	"internal/rules/xds":         9, // rules from a control plane

	"internal/decide":            7, // around the engine: bans, overrides, candidates
	"internal/decide/engine":     6, // the verdict on a request
	"internal/decide/admission":  7, // the life of a request
	"internal/decide/orders":     8, // grants and resets of other regions
	"internal/decide/standalone": 7, // an engine without a table of bans that servers share
	"internal/decide/adaptive":   1, // how many requests an upstream can work on
	"internal/decide/checks":     2, // the scopes of the limits of middleware

	"internal/answer":          6,  // what all answers share: headers and bodies
	"internal/counts/storing":  10, // opens the store, and what belongs to it
	"internal/counts/dispatch": 11, // opens the queue, and asks when an entry may be sent
	"internal/counts/trial":    11, // the candidate of a process: its files, its counts

	"internal/request":          6, // the client, and what it requests
	"internal/request/spelling": 0, // one form of what clients write in many
	"internal/request/reading":  1, // the ways in which servers read one path
	"internal/request/client":   2, // who is asking
	"internal/request/jwt":      7, // verifies tokens

	"internal/transport":             6, // connections: bounds, TLS, shared ports
	"internal/transport/membound":    1,
	"internal/transport/rightserver": 1, // the client of Redis, which may have to be replaced
	"internal/transport/ticks":       0,
	"internal/transport/unread":      1,
	"internal/transport/netbound":    2,
	"internal/transport/h2bound":     2,
	"internal/transport/overload":    2,

	"internal/door":                 10, // the kit of doors
	"internal/door/":                12, // each folder a door
	"internal/door/admin/dashboard": 7,  // the pages of the admin door
	"internal/door/selfservice":     9,  // tells callers their own limits
	"internal/door/serving":         12, // opens, bounds, serves and closes them all
	"internal/door/grpcserver":      8,  // serves them over gRPC
	"internal/door/httprequest":     8,  // an HTTP request, as rules see it
	"internal/door/described":       7,  // a request described by attributes
	"internal/door/httpapi":         11, // services that doors offer
	"internal/door/grpcapi":         11,
	"internal/door/rls":             11,
	"internal/door/forwardauth":     11,

	"internal/observe":           7, // metrics
	"internal/observe/announce":  8, // tells operators of warnings
	"internal/observe/candidate": 7, // what candidate rules would have answered
	"internal/observe/telemetry": 8, // traces and metrics, sent elsewhere
	"internal/observe/sse":       0, // live events, for readers that may be slow
	"internal/observe/top":       1, // the most frequent keys

	"internal/replay":            9, // what rules would do
	"internal/replay/accesslog":  6,
	"internal/replay/offline":    12, // the commands that need no server
	"internal/replay/playground": 2,  // one limit and its books, for web/wasm

	"internal/queue":         6, // requests that are sent later
	"internal/queue/file":    7, // kept in a file
	"internal/queue/streams": 7, // kept in Redis

	"internal/operate": 13, // what operators use around a server

	"internal/config": 9,
	"internal/app":    13, // the only package that sees everything

	"internal/testkit":             0, // for tests: starts a real server, makes certificates
	"internal/testkit/adaptertest": 8, // compares the middleware of frameworks with httplimit
}

// groups are the folders of internal/, the lowest first: a package imports only groups
// before its own. (The layers order packages; they would not see that two groups need
// each other.) internal/README.md shows what each imports.
var groups = []string{"base", "transport", "request", "rules", "answer", "queue", "decide", "observe", "config", "counts", "door", "replay", "operate", "app"}

// only lists packages that may be imported by nothing but the named importers.
// Doors see rules for its Request, which each of them implements.
var only = map[string][]string{
	"internal/rules":              {"internal/rules", "internal/decide", "internal/app", "internal/config", "internal/queue", "internal/request", "internal/door", "internal/counts", "internal/observe", "internal/replay", "rulefiles"},
	"store/blocks":                {"examples", "internal/app", "internal/counts/storing", "internal/door/admin", "internal/door/api", "internal/door/httpapi"},
	"store/memory":                {"examples", "internal/counts/storing", "internal/counts/trial", "internal/replay"},
	"store/redis":                 {"examples", "internal/config", "internal/operate/doctor", "internal/counts/dispatch", "internal/counts/storing", "internal/decide/control", "internal/queue"},
	"store/storetest":             {},
	"internal/testkit/redistest":  {},
	"internal/testkit/certtest":   {},
	"internal/testkit/limitreq":   {},
	"internal/testkit/slowserver": {},
}

// stdOnly lists packages that a library user builds with nothing but the
// standard library: they may import that, and each other.
var stdOnly = []string{".", "algorithm", "store", "store/memory", "internal/base/plain", "internal/base/steady", "internal/base/fastclock", "internal/base/atomicfile", "internal/base/hugepage"}

// forbidden lists, for a folder and all below it, imports that it must do
// without, and why.
var forbidden = map[string]map[string]string{
	".": {
		"math/rand":             "math/rand/v2 is the one in use",
		"log":                   "log/slog is the one in use",
		"testing":               "it registers flags in the user's binary; only store/storetest is for tests",
		"github.com/pkg/errors": "errors and fmt do",
	},
	"store/memory": {
		"net":      "the embedded store uses no network",
		"net/http": "the embedded store uses no network",
	},
	"internal/rules": {
		"net/http": "a rule knows attributes; only a door speaks HTTP",
	},
	"internal/decide": {
		"net/http": "a verdict is for every door; only a door speaks HTTP",
	},
}

// small lists packages that are compiled to WebAssembly for the playground, and
// heavy what they must do without for it.
var (
	small = []string{".", "algorithm", "store", "internal/base/plain"}
	heavy = map[string]string{
		"fmt":           "with reflection it adds 230 kB to the compressed WebAssembly",
		"encoding/json": "with reflection it adds 230 kB to the compressed WebAssembly",
		"net":           "the arithmetic uses no network",
		"net/http":      "the arithmetic uses no network",
		"os":            "the arithmetic reads nothing but its arguments",
		"sync":          "a store locks; a step is pure",
		"math/big":      "all quantities are integers below 2^53, as in Lua",
	}
)

// exempt lists exceptions from forbidden and heavy, with the reason.
var exempt = map[[2]string]string{
	{"store", "sync"}:                         "a pool of batches, so that a call does not allocate",
	{"store/storetest", "testing"}:            "it is a test suite",
	{"internal/testkit/redistest", "testing"}: "only tests import it",
	{"internal/testkit/certtest", "testing"}:  "only tests import it",
}

// source is one Go file that is not a test.
type source struct {
	file    string // relative to the module, with slashes
	dir     string
	imports []string
	syntax  *ast.File
}

// sources parses every Go file of the module that is not a test. It is done
// here, not by running go list: the test cache sees the files that a test
// reads itself, but not those that its child processes read, and would keep
// saying ok over a violation.
func sources(t *testing.T) []source {
	t.Helper()
	var found []source
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipped(file, d.Name())
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		s := source{file: filepath.ToSlash(file), syntax: syntax}
		s.dir = path.Dir(s.file)
		for _, spec := range syntax.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, imported)
		}
		found = append(found, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// skipped returns SkipDir for a folder that holds no package of the module:
// another module (tools, benchmarks), fixtures, or what Go itself ignores.
func skipped(dir, name string) error {
	if dir == "." {
		return nil
	}
	if name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

// ours returns the folder of an import of this module.
func ours(imported string) (dir string, ok bool) {
	dir, ok = strings.CutPrefix(imported+"/", module+"/")
	return path.Clean(dir), ok
}

func layerOf(dir string) (layer int, ok bool) {
	for p := dir; p != "."; p = path.Dir(p) {
		if l, ok := layers[p+"/"]; ok && p != dir {
			return l, true
		}
		if l, ok := layers[p]; ok {
			return l, true
		}
	}
	return layers["."], dir == "."
}

// within reports whether dir is folder or below it.
func within(dir, folder string) bool {
	return folder == "." || dir == folder || strings.HasPrefix(dir, folder+"/")
}

func TestImportsPointDown(t *testing.T) {
	for _, s := range sources(t) {
		layer, ok := layerOf(s.dir)
		if !ok {
			t.Errorf("%s: folder %s has no layer: add it to layers, or move the file", s.file, s.dir)
			continue
		}
		for _, imported := range s.imports {
			to, ok := ours(imported)
			if !ok {
				continue
			}
			if l, _ := layerOf(to); l >= layer {
				t.Errorf("%s: layer %d imports %s in layer %d: imports must point down", s.file, layer, to, l)
			}
			allowed := only[to]
			if allowed != nil && !slices.ContainsFunc(allowed, func(folder string) bool { return within(s.dir, folder) }) {
				t.Errorf("%s: only %v may import %s", s.file, allowed, to)
			}
		}
	}
}

// groupOf returns the place of a folder's group, or -1.
func groupOf(dir string) int {
	group, ok := strings.CutPrefix(dir, "internal/")
	if !ok {
		return -1
	}
	group, _, _ = strings.Cut(group, "/")
	return slices.Index(groups, group)
}

func TestGroupsHaveNoCycles(t *testing.T) {
	used := make([]map[int]bool, len(groups))
	for _, s := range sources(t) {
		from := groupOf(s.dir)
		if from < 0 {
			if within(s.dir, "internal") && !within(s.dir, "internal/testkit") {
				t.Errorf("%s: %s is in no group", s.file, s.dir)
			}
			continue
		}
		if used[from] == nil {
			used[from] = map[int]bool{}
		}
		for _, imported := range s.imports {
			dir, _ := ours(imported)
			to := groupOf(dir)
			if to > from {
				t.Errorf("%s: the group %s imports %s of a later one", s.file, groups[from], dir)
			}
			if to >= 0 && to != from {
				used[from][to] = true
			}
		}
	}
	drawGroups(t, used)
}

// drawGroups checks the picture of internal/README.md: a line for each group, with those
// that it imports.
func drawGroups(t *testing.T, used []map[int]bool) {
	t.Helper()
	const file, begin, end = "internal/README.md", "```text\n", "```\n"
	var picture strings.Builder
	for from, group := range slices.Backward(groups) {
		line := fmt.Sprintf("%-11s", group)
		for to := range groups {
			name := groups[to]
			if !used[from][to] {
				name = strings.Repeat(" ", len(name))
			}
			line += name + " "
		}
		picture.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	shown, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no picture", file)
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+picture.String()+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if shown != picture.String() {
		t.Errorf("%s shows\n%s\nwant\n%s\ngo test ./internal/repotest -run '^TestGroups' -update draws it", file, shown, &picture)
	}
}

func TestCoreIsStandardLibraryOnly(t *testing.T) {
	for _, s := range sources(t) {
		if !slices.Contains(stdOnly, s.dir) {
			continue
		}
		for _, imported := range s.imports {
			if to, ok := ours(imported); ok {
				if !slices.Contains(stdOnly, to) {
					t.Errorf("%s imports %s, which is not promised to need the standard library only", s.file, to)
				}
				continue
			}
			// A path whose first part has no dot is the standard library's.
			if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") || imported == "C" {
				t.Errorf("%s imports %s: package %s is built from the standard library alone", s.file, imported, s.dir)
			}
		}
	}
}

func TestForbiddenImports(t *testing.T) {
	for _, s := range sources(t) {
		for _, folder := range slices.Sorted(maps.Keys(forbidden)) {
			if !within(s.dir, folder) {
				continue
			}
			for _, imported := range s.imports {
				why, bad := forbidden[folder][imported]
				if _, excused := exempt[[2]string{s.dir, imported}]; bad && !excused {
					t.Errorf("%s imports %s: %s", s.file, imported, why)
				}
			}
		}
	}
}

func TestArithmeticStaysSmall(t *testing.T) {
	for _, s := range sources(t) {
		if !slices.Contains(small, s.dir) {
			continue
		}
		for _, imported := range s.imports {
			if why, bad := heavy[imported]; bad && exempt[[2]string{s.dir, imported}] == "" {
				t.Errorf("%s imports %s: %s", s.file, imported, why)
			}
		}
	}
}

func TestEveryPackageHasADoc(t *testing.T) {
	documented := make(map[string]bool)
	for _, s := range sources(t) {
		begin := "Package " + s.syntax.Name.Name + " "
		if s.syntax.Name.Name == "main" {
			begin = "Command "
		}
		ok := strings.HasPrefix(s.syntax.Doc.Text(), begin)
		if s.syntax.Doc != nil && !ok {
			t.Errorf("%s: the package comment must begin with %q", s.file, begin)
		}
		documented[s.dir] = documented[s.dir] || ok
	}
	for _, dir := range slices.Sorted(maps.Keys(documented)) {
		if !documented[dir] {
			t.Errorf("package %s has no doc comment", dir)
		}
	}
}

func TestEveryRoomIsOnTheFloorPlan(t *testing.T) {
	for _, s := range sources(t) {
		group, room, ok := strings.Cut(strings.TrimPrefix(s.dir, "internal/"), "/")
		if !within(s.dir, "internal") {
			continue
		}
		plan, want := "internal/README.md", "`"+group+"/`"
		if ok {
			plan, want = "internal/"+group+"/README.md", room
		}
		text, err := os.ReadFile(plan)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s does not name %s: say in one line what it is for", plan, s.dir)
		}
	}
}

package repotest

import (
	"bytes"
	"flag"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/public.txt, testdata/messages.txt and testdata/metrics.txt")

// public are the folders that Go programs may import. All others are under internal/,
// or generated from api/.
var public = []string{
	".", "algorithm", "middleware/httplimit", "middleware/grpclimit", "rulefiles", "store", "store/blocks", "store/failsafe", "store/homes", "store/memory", "store/redis", "store/regions", "store/storetest",
	"middleware/echolimit", "middleware/fiberlimit", "middleware/ginlimit",
}

// TestPublicFace: what Go programs can use is what testdata/public.txt lists, a line
// for each name, so that no change to it goes unseen. A line that is taken away or
// changed breaks programs.
func TestPublicFace(t *testing.T) {
	var lines []string
	for _, dir := range public {
		lines = append(lines, exported(t, dir)...)
	}
	const file = "internal/repotest/testdata/public.txt"
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	promised := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for _, line := range promised {
		if !slices.Contains(lines, line) {
			t.Errorf("gone: %s", line)
		}
	}
	for _, line := range lines {
		if !slices.Contains(promised, line) {
			t.Errorf("new: %s", line)
		}
	}
	if t.Failed() {
		t.Log("if this is meant: go test ./internal/repotest -run '^TestPublicFace$' -update, and say so in CHANGELOG.md")
	}
}

// exported returns a line for each exported name of the package in dir.
func exported(t *testing.T, dir string) (lines []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(file)
		for _, decl := range file.Decls {
			lines = append(lines, declared(t, set, file.Name.Name, decl)...)
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines) // what is there for each system
}

// declared returns a line for each name that a declaration exports.
func declared(t *testing.T, set *token.FileSet, pkg string, decl ast.Decl) (lines []string) {
	t.Helper()
	note := func(words string, node any) { lines = append(lines, pkg+": "+words+oneLine(t, set, node)) }
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil && !ast.IsExported(receiver(d.Recv.List[0].Type)) {
			return nil
		}
		d.Doc, d.Body = nil, nil
		note("", d)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					note(d.Tok.String()+" ", name)
				}
			case *ast.TypeSpec:
				lines = append(lines, typeLines(t, set, pkg, s)...)
			}
		}
	}
	return lines
}

// receiver returns the name of the type that a method is of.
func receiver(of ast.Expr) string {
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	name, _ := of.(*ast.Ident)
	return name.Name
}

// typeLines returns a line for a type, and one for each of its exported fields or
// methods.
func typeLines(t *testing.T, set *token.FileSet, pkg string, s *ast.TypeSpec) []string {
	t.Helper()
	name := "type " + s.Name.Name
	var fields *ast.FieldList
	lines := []string{pkg + ": " + name + " "}
	switch kind := s.Type.(type) {
	case *ast.StructType:
		fields, lines[0] = kind.Fields, lines[0]+"struct"
	case *ast.InterfaceType:
		fields, lines[0] = kind.Methods, lines[0]+"interface"
	default:
		lines[0] += oneLine(t, set, kind)
		return lines
	}
	for _, f := range fields.List {
		for _, field := range f.Names {
			lines = append(lines, pkg+": "+name+", "+field.Name+" "+oneLine(t, set, f.Type))
		}
		if len(f.Names) == 0 {
			lines = append(lines, pkg+": "+name+", "+oneLine(t, set, f.Type))
		}
	}
	return lines
}

// oneLine prints a part of a program in one line.
func oneLine(t *testing.T, set *token.FileSet, node any) string {
	t.Helper()
	var b bytes.Buffer
	if err := format.Node(&b, set, node); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

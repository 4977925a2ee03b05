package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one change.
type mutant struct {
	id             int
	file, function string
	line           int
	was, becomes   string
	lives          bool
}

// String names the change independently of its line number.
func (m *mutant) String() string {
	return fmt.Sprintf("%s %s: %s → %s", m.file, m.function, m.was, m.becomes)
}

// pkg is the source of a package.
type pkg struct {
	set   *token.FileSet
	names []string
	files []*ast.File
	texts [][]byte
	info  *types.Info
	types *types.Package
}

// load parses the non-test files of a folder that are built on this platform.
func load(dir string) (*pkg, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	found, err := build.ImportDir(dir, 0)
	if err != nil {
		return nil, err
	}
	p := &pkg{set: token.NewFileSet(), info: &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}}
	for _, name := range found.GoFiles {
		name = filepath.Join(dir, name)
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(p.set, name, text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		p.names, p.files, p.texts = append(p.names, name), append(p.files, f), append(p.texts, text)
	}
	config := types.Config{Importer: importer.ForCompiler(p.set, "source", nil), Error: func(error) {}}
	p.types, _ = config.Check(found.ImportPath, p.set, p.files, p.info) // expressions without a type are left alone
	return p, nil
}

// others has the replacements of each operator.
var others = map[token.Token][]token.Token{ //nolint:gochecknoglobals // a table
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL}, token.REM: {token.MUL},
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
}

// rewriter writes one file with all changes in it.
type rewriter struct {
	*pkg
	file     int
	first    int
	found    []*mutant
	ids      map[token.Pos][]*mutant
	function string
}

// rewrite returns a file with all changes in it, numbered from first+1.
func (p *pkg) rewrite(file, first int) ([]byte, []*mutant) {
	r := &rewriter{pkg: p, file: file, first: first, ids: make(map[token.Pos][]*mutant)}
	var out bytes.Buffer
	at := p.files[file].FileStart
	for _, d := range p.files[file].Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		r.function = f.Name.Name
		out.Write(r.text(at, f.Body.Pos()))
		out.WriteString(r.node(f.Body))
		at = f.Body.End()
	}
	out.Write(r.text(at, p.files[file].FileEnd))
	return out.Bytes(), r.found
}

func (r *rewriter) text(from, to token.Pos) []byte {
	f := r.set.File(from)
	end := len(r.texts[r.file])
	if int(to)-f.Base() < end {
		end = f.Offset(to)
	}
	return r.texts[r.file][f.Offset(from):end]
}

// node returns the text of a node with its changes.
func (r *rewriter) node(n ast.Node) string {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if text, ok := r.binary(n); ok {
			return text
		}
	case *ast.IncDecStmt:
		return r.step(n)
	}
	return r.inside(n)
}

// inside returns the text of a node whose parts are changed.
func (r *rewriter) inside(n ast.Node) string {
	var out strings.Builder
	at := n.Pos()
	ast.Inspect(n, func(c ast.Node) bool {
		if c == nil || c == n {
			return c == n
		}
		if c.Pos() < at { // part of what was written
			return false
		}
		switch c.(type) {
		case *ast.GenDecl: // constants have no closures
			out.Write(r.text(at, c.End()))
			at = c.End()
			return false
		case *ast.BinaryExpr, *ast.IncDecStmt:
			out.Write(r.text(at, c.Pos()))
			out.WriteString(r.node(c))
			at = c.End()
			return false
		}
		return true
	})
	out.Write(r.text(at, n.End()))
	return out.String()
}

// mutants returns the changes at a position; the same ones if it is written again.
func (r *rewriter) mutants(at token.Pos, was string, becomes ...string) []*mutant {
	if list, ok := r.ids[at]; ok {
		return list
	}
	var list []*mutant
	for _, b := range becomes {
		position := r.set.Position(at)
		list = append(list, &mutant{
			id: r.first + len(r.found) + len(list) + 1, file: filepath.Base(position.Filename), line: position.Line,
			function: r.function, was: oneLine(was), becomes: oneLine(b),
		})
	}
	r.found = append(r.found, list...)
	r.ids[at] = list
	return list
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// binary returns an expression that checks which change is selected.
func (r *rewriter) binary(n *ast.BinaryExpr) (string, bool) {
	t, known := r.info.Types[n]
	ops := others[n.Op]
	if !known || t.Value != nil || len(ops) == 0 || t.Type == nil {
		return "", false
	}
	basic, ok := t.Type.Underlying().(*types.Basic)
	if !ok || basic.Info()&(types.IsInteger|types.IsBoolean|types.IsFloat) == 0 {
		return "", false
	}
	if n.Op == token.REM && basic.Info()&types.IsInteger == 0 {
		return "", false
	}
	x, y := string(r.text(n.X.Pos(), n.X.End())), string(r.text(n.Y.Pos(), n.Y.End()))
	var names []string
	for _, op := range ops {
		names = append(names, x+" "+op.String()+" "+y)
	}
	list := r.mutants(n.OpPos, x+" "+n.Op.String()+" "+y, names...)
	left, right := r.node(n.X), r.node(n.Y)
	name := r.typeOf(n)
	if basic.Info()&types.IsUntyped != 0 {
		name = "bool"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "func() %s { switch mutant {", name)
	for i, op := range ops {
		fmt.Fprintf(&out, " case %d: return (%s) %s (%s);", list[i].id, left, op, right)
	}
	fmt.Fprintf(&out, " }; return (%s) %s (%s) }()", left, n.Op, right)
	return out.String(), true
}

// step is x++ or x--.
func (r *rewriter) step(n *ast.IncDecStmt) string {
	other := token.DEC
	if n.Tok == token.DEC {
		other = token.INC
	}
	x := string(r.text(n.X.Pos(), n.X.End()))
	m := r.mutants(n.TokPos, x+n.Tok.String(), x+other.String())[0]
	sign := map[token.Token]string{token.INC: "+", token.DEC: "-"}
	return fmt.Sprintf("%s = func() (by %s) { if by = 1; mutant == %d { return (%s) %s by }; return (%s) %s by }()",
		x, r.typeOf(n.X), m.id, x, sign[other], x, sign[n.Tok])
}

func (r *rewriter) typeOf(x ast.Expr) string {
	t := r.info.Types[x].Type
	if t == nil {
		return "int"
	}
	name := types.TypeString(t, types.RelativeTo(r.types))
	return name[strings.LastIndex(name, "/")+1:]
}

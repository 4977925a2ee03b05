package structured_test

import (
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"

	"github.com/headgate/headgate/internal/base/structured"
)

// malformed has the shapes of Lists that a parser must refuse, after the tests of
// httpwg/structured-field-tests.
var malformed = []string{
	`,`, `,a`, `a,`, `a,,b`, `a, ,b`, "a,\t", "\ta", "a,\vb", `a b`, `a=1`, `1 2`, // lists
	`(`, `)`, `(a`, `a)`, `(a,b)`, `(a b`, "(a\tb)", `(a"b")`, `((a))`, `(a);`, `()b`, // inner lists
	`"a`, `a"`, `"a\`, `"a\n"`, `"a\\\"`, "\"a\tb\"", "\"a\x00\"", "\"a\x7f\"", `"grün"`, `'a'`, `"a" "b"`, // strings
	`-`, `--1`, `+1`, `- 1`, `1-`, `1.`, `.1`, `-.1`, `1.2.3`, `1.2345`, `1234567890123456`, `-1234567890123456`, `1234567890123.1`, `1e3`, `0x1`, `1_0`, // numbers
	`é`, `a é`, `{a`, `a{`, `&a`, `a@`, // tokens
	`:`, `:a`, `:a b:`, `:a_:`, `:a-:`, "a:b:\x00", // byte sequences
	`?`, `?2`, `?T`, `?true`, `? 1`, `?11`, // booleans
	`@`, `@a`, `@1.5`, `@-`, `@ 1`, // dates
	`%`, `%a`, `%"a`, `%"%"`, `%"%4"`, `%"%G0"`, `%"%C3%BC"`, `%"%c3"`, `%"ü"`, `% "a"`, // display strings
	`a;`, `a;;b`, `a;B`, `a;1`, `a;b=`, `a;b= 1`, `a;b =1`, `a ;b`, `a;b=(1)`, `a;b=c d`, "a;\tb", `a;b;`, `a;b=1;`, // parameters
}

var wellFormed = []string{
	``, ` `, ` a `, `a`, `a,b`, `a , b`, "a\t,\tb", `*a`, `A/b:c`, `*`, `a!#$%&'*+-.^_|~`,
	`()`, `( )`, `(a)`, `( a  b )`, `(a b);c`, `(a;b=1 "c");d`, `(),()`,
	`""`, `"a\"b\\"`, `" ,;="`, `0`, `-0`, `00`, `007`, `999999999999999`, `-999999999999999`, `1.0`, `-0.125`, `123456789012.123`,
	`::`, `:YQ==:`, `:YQ:`, `?0`, `?1`, `@0`, `@-1`, `%""`, `%"a"`, `%"gr%c3%bcn"`, `%"a%22b"`,
	`a;b`, `a; b`, `a;  b=1;c="d"`, `a;b=1;b=2`, `a;*`, `a;a_-.*0=?1`, `"a";r=0;t=5`,
}

func TestListsAreReadStrictly(t *testing.T) {
	for _, s := range malformed {
		if _, ok := structured.List([]string{s}); ok {
			t.Errorf("%q was read", s)
		}
		for _, within := range []string{`"a";r=0;t=5, ` + s, s + `, "a";r=0;t=5`} {
			if _, ok := structured.List([]string{within}); ok && !mended(within) {
				t.Errorf("%q was read", within)
			}
		}
	}
	for _, s := range wellFormed {
		if _, ok := structured.List([]string{s}); !ok {
			t.Errorf("%q was not read", s)
		}
	}
}

// mended reports whether another parser reads s too: a comma can complete a piece.
func mended(s string) bool {
	_, err := httpsfv.UnmarshalList([]string{s})
	return err == nil
}

func TestIntegersAreRead(t *testing.T) {
	items, ok := structured.List([]string{`"a";r=-0;t=015;t=16`, `(1 2);r=3, b;r=1.0`})
	if !ok || len(items) != 3 {
		t.Fatal(items, ok)
	}
	for i, want := range []struct {
		kind         structured.Kind
		r, t         int64
		r0, t0, rInt bool // whether they are there, and whether r is an Integer
	}{{structured.String, 0, 16, true, true, true}, {structured.Other, 3, 0, true, false, true}, {structured.Other, 0, 0, true, false, false}} {
		r, r0, rInt := items[i].Param("r")
		u, u0, _ := items[i].Param("t")
		if items[i].Kind != want.kind || r != want.r || u != want.t || r0 != want.r0 || u0 != want.t0 || rInt != want.rInt {
			t.Errorf("%d: %+v", i, items[i])
		}
	}
}

func TestDictionaries(t *testing.T) {
	items, ok := structured.Dictionary([]string{"limit=1, remaining=0", "reset=60;x, flag, flag=7"})
	got := ""
	for _, i := range items {
		got += i.Key + " "
	}
	if !ok || got != "limit remaining reset flag flag " || items[2].Integer != 60 || items[3].Kind != structured.Other || items[4].Integer != 7 {
		t.Errorf("%+v, %v", items, ok)
	}
	for _, s := range []string{`"a"`, `a b`, `a=`, `a=1,`, `A=1`, `a=1 2`, `a==1`, `=1`} {
		if _, ok := structured.Dictionary([]string{s}); ok {
			t.Errorf("%q was read", s)
		}
	}
}

// FuzzList compares with another parser. It differs knowingly where that one is lenient.
func FuzzList(f *testing.F) {
	for _, s := range append(malformed, wellFormed...) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, ok := structured.List([]string{s})
		_, err := httpsfv.UnmarshalList([]string{s})
		if ok != (err == nil) && !strings.ContainsAny(s, "@%:.") {
			t.Errorf("%q: read %v, by the other parser %v", s, ok, err)
		}
	})
}

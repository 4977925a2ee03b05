package main

import (
	"go/parser"
	"go/token"
	"testing"
)

// An image from scratch has no time zones; rules with a timezone: work there
// all the same. The machine that tests run on has them, so what can be tested
// is that they are built in.
func TestTimeZonesAreBuiltIn(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "main.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range f.Imports {
		if i.Path.Value == `"time/tzdata"` {
			return
		}
	}
	t.Error("main.go does not import time/tzdata")
}

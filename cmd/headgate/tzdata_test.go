package main

import (
	"go/parser"
	"go/token"
	"testing"
)

// Rules with a timezone: work in an image from scratch, which has no time zones.
// The machine that runs the tests has them, so this tests that they are built in.
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

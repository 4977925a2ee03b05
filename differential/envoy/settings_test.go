package envoy

import (
	"flag"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/envoyproxy/ratelimit/src/settings"
)

var update = flag.Bool("update", false, "rewrite the list of the original's environment variables")

// listed has the variables that the original reads, for a test of internal/config, which must
// not depend on the original.
const listed = "../../internal/config/testdata/envoy-settings.txt"

// TestSettings: the list has all variables of the version in go.mod.
func TestSettings(t *testing.T) {
	var names []string
	for field := range fields(reflect.TypeFor[settings.Settings]()) {
		if name := field.Tag.Get("envconfig"); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	want := "# The environment variables of envoyproxy/ratelimit " + version(t) + ".\n" +
		"# Written by: cd differential/envoy && go test -run TestSettings -update\n" + strings.Join(names, "\n") + "\n"
	if *update {
		if err := os.WriteFile(listed, []byte(want), 0o644); err != nil { //nolint:gosec // no secret
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(listed)
	if err != nil || string(got) != want {
		t.Errorf("%s is not the list of %d variables (%v): run this test with -update", listed, len(names), err)
	}
}

func fields(of reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range of.NumField() {
			if !yield(of.Field(i)) {
				return
			}
		}
	}
}

// version returns the original's version in this module's go.mod.
func version(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`github\.com/envoyproxy/ratelimit (v\S+)`).FindSubmatch(text)
	if found == nil {
		t.Fatal("go.mod does not name the original")
	}
	return string(found[1])
}

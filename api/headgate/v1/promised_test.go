package headgatev1_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

var update = flag.Bool("update", false, "rewrite testdata/promised.txt")

// TestMessagesAreAsPromised: testdata/promised.txt lists the methods, the fields with their
// numbers and types, and the values of enumerations. A line that is taken away or changed
// breaks clients; see docs/start/install.md.
func TestMessagesAreAsPromised(t *testing.T) {
	file := headgatev1.File_headgate_v1_limiter_proto
	lines := []string{"package " + string(file.Package())}
	for i := range file.Services().Len() {
		s := file.Services().Get(i)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			lines = append(lines, fmt.Sprintf("%s(%s) %s, streaming %t %t", m.FullName(), m.Input().Name(), m.Output().Name(), m.IsStreamingClient(), m.IsStreamingServer()))
		}
	}
	lines = append(lines, enums(file.Enums())...)
	lines = append(lines, messages(file.Messages())...)
	slices.Sort(lines)
	const name = "testdata/promised.txt"
	if *update {
		if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(text)), "\n"), lines); diff != "" {
		t.Errorf("if this is meant, run this test with -update, and say so in CHANGELOG.md:\n%s", diff)
	}
}

// messages returns a line for each field.
func messages(all protoreflect.MessageDescriptors) (lines []string) {
	for i := range all.Len() {
		m := all.Get(i)
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			lines = append(lines, fmt.Sprintf("%s = %d, %s", f.FullName(), f.Number(), kind(f)))
		}
		lines = append(lines, enums(m.Enums())...)
		lines = append(lines, messages(m.Messages())...)
	}
	return lines
}

// kind returns the type of a field.
func kind(f protoreflect.FieldDescriptor) string {
	text := f.Cardinality().String() + " " + f.Kind().String()
	if f.HasOptionalKeyword() {
		text = "explicit " + text
	}
	if of := f.Message(); of != nil {
		text += " " + string(of.FullName())
	}
	if of := f.Enum(); of != nil {
		text += " " + string(of.FullName())
	}
	if of := f.ContainingOneof(); of != nil && !of.IsSynthetic() {
		text += " in " + string(of.Name())
	}
	return text
}

// enums returns a line for each value.
func enums(all protoreflect.EnumDescriptors) (lines []string) {
	for i := range all.Len() {
		for j := range all.Get(i).Values().Len() {
			v := all.Get(i).Values().Get(j)
			lines = append(lines, fmt.Sprintf("%s = %d", v.FullName(), v.Number()))
		}
	}
	return lines
}

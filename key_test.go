package headgate_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// TestT32_JoinedKeysStayApart: keys joined by a separator collide (trap T32);
// lengths before the parts keep them apart.
func TestT32_JoinedKeysStayApart(t *testing.T) {
	pairs := [][2][]string{
		{{"a_b", "c"}, {"a", "b_c"}},
		{{"a|b", "c"}, {"a", "b|c"}},
		{{"a", ""}, {"a"}},
		{{"", "a"}, {"a"}},
		{{}, {""}},
		{{""}, {"", ""}},
		{{"\x01a"}, {"a"}},
		{{"\x01", "a"}, {"\x01\x01a"}},
		{{strings.Repeat("a", 127)}, {strings.Repeat("a", 128)}},
		{{strings.Repeat("a", 128), "b"}, {strings.Repeat("a", 128) + "b"}},
		{{"a\x00", "b"}, {"a", "\x00b"}},
	}
	for _, p := range pairs {
		a, b := headgate.AppendKey(nil, p[0]...), headgate.AppendKey(nil, p[1]...)
		if bytes.Equal(a, b) {
			t.Errorf("%q and %q share the key %q", p[0], p[1], a)
		}
	}
}

func TestAppendKeyAppends(t *testing.T) {
	got := headgate.AppendKey([]byte("x"), "ab", "")
	if want := []byte("x\x02ab\x00"); !bytes.Equal(got, want) {
		t.Errorf("AppendKey = %q, want %q", got, want)
	}
	room := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() { headgate.AppendKey(room, "user", "42") }); n != 0 {
		t.Errorf("AppendKey into a slice with room allocates %v times", n)
	}
}

// FuzzAppendKeyInjective takes a key apart again: an encoding that can be
// decoded in one way only cannot give two lists the same key.
func FuzzAppendKeyInjective(f *testing.F) {
	f.Add("a_b", "c", "")
	f.Add("a", "b_c", "\x00")
	f.Add(strings.Repeat("k", 300), "{tag}", "\xff\xfe")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		parts := []string{a, b, c}
		for n := range len(parts) + 1 {
			key := headgate.AppendKey(nil, parts[:n]...)
			if got, ok := split(key); !ok || !slices.Equal(got, parts[:n]) {
				t.Fatalf("%q became %q, which reads as %q", parts[:n], key, got)
			}
		}
	})
}

// split is the inverse of AppendKey.
func split(key []byte) ([]string, bool) {
	parts := []string{}
	for len(key) > 0 {
		n, width := binary.Uvarint(key)
		if width <= 0 || n > uint64(len(key)-width) {
			return nil, false
		}
		key = key[width:]
		parts = append(parts, string(key[:n]))
		key = key[n:]
	}
	return parts, true
}

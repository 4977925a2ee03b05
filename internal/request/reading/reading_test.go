package reading_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/request/reading"
)

var (
	anEscape   = regexp.MustCompile(`%[0-9a-fA-F]{2}`)
	aQuery     = regexp.MustCompile(`(?s)[?#\x00].*`)
	slashes    = regexp.MustCompile(`/+`)
	parameters = regexp.MustCompile(`;[^/]*`)
	unwritable = regexp.MustCompile("%([89a-fA-F][0-9a-fA-F]|2[02]|3[cCeE]|5[eE]|60|7[b-dB-D])")
)

// servers are the steps of servers, implemented independently of the package, with the
// standard library where possible.
var servers = []struct {
	name string
	step func(path string) string
}{
	{"decode", unescape},
	{"decode all but slashes", func(p string) string {
		var out strings.Builder
		for len(p) > 0 {
			at := anEscape.FindStringIndex(p)
			if at == nil {
				break
			}
			out.WriteString(p[:at[0]])
			if escape := p[at[0]:at[1]]; strings.EqualFold(escape, "%2f") {
				out.WriteString(escape)
			} else {
				out.WriteString(unescape(escape))
			}
			p = p[at[1]:]
		}
		return out.String() + p
	}},
	{"backslashes", func(p string) string { return strings.ReplaceAll(p, `\`, "/") }},
	{"merge", func(p string) string { return slashes.ReplaceAllString(p, "/") }},
	{"path.Clean", path.Clean},
	{"RFC 3986", func(p string) string { return rfc3986(p) }},
	{"a router cut a segment off", func(p string) string { return below(p, 1) }},
	{"a router cut two segments off", func(p string) string { return below(p, 2) }},
	{"strip parameters", func(p string) string { return parameters.ReplaceAllString(p, "") }},
	{"cut at ;", func(p string) string { before, _, _ := strings.Cut(p, ";"); return before }},
	{"parse again", func(p string) string { return aQuery.ReplaceAllString(p, "") }},
	{"$ before a line feed", func(p string) string { before, _, _ := strings.Cut(p, "\n"); return before }},
	{"^ behind a line feed", func(p string) string {
		if _, after, _ := strings.Cut(p, "\n"); strings.HasPrefix(after, "/") {
			return after
		}
		return p
	}},
	{"PATH_INFO", func(p string) string {
		if name, after, ok := strings.Cut(p, ".php/"); ok && name != "" && strings.Trim(after, "/") != "" { // of index.php alone the path is itself
			return "/" + after
		}
		return p
	}},
	{"a folder's page", func(p string) string {
		if folder, ok := strings.CutSuffix(strings.TrimRight(p, "/"), "/index.php"); ok {
			return folder + "/"
		}
		return p
	}},
	{"authority", func(p string) string {
		if !strings.HasPrefix(p, "//") {
			return p
		}
		_, after, _ := strings.Cut(strings.TrimLeft(p, "/"), "/")
		return "/" + after
	}},
}

// unescape decodes all valid escapes.
func unescape(p string) string {
	return anEscape.ReplaceAllStringFunc(p, func(s string) string {
		out, err := url.PathUnescape(s)
		if err != nil {
			return s
		}
		return out
	})
}

// rfc3986 implements section 5.2.4 literally.
func rfc3986(in string) string {
	out := ""
	for in != "" {
		switch {
		case strings.HasPrefix(in, "../"):
			in = in[3:]
		case strings.HasPrefix(in, "./"):
			in = in[2:]
		case strings.HasPrefix(in, "/./"):
			in = in[2:]
		case in == "/.":
			in = "/"
		case strings.HasPrefix(in, "/../"):
			in, out = in[3:], out[:max(strings.LastIndexByte(out, '/'), 0)]
		case in == "/..":
			in, out = "/", out[:max(strings.LastIndexByte(out, '/'), 0)]
		case in == "." || in == "..":
			in = ""
		default:
			next := strings.IndexByte(in[1:], '/') + 1
			if next == 0 {
				next = len(in)
			}
			out, in = out+in[:next], in[next:]
		}
	}
	return out
}

// below resolves what follows the first n segments, unless these are dot segments.
func below(p string, n int) string {
	steps := strings.SplitN(p, "/", n+2)
	if len(steps) < n+2 || slices.Contains(steps[:n+1], "..") || slices.Contains(steps[:n+1], ".") {
		return p
	}
	return strings.Join(steps[:n+1], "/") + rfc3986("/"+steps[n+1])
}

// end returns p without trailing slashes.
func end(p string) string {
	p = strings.TrimRight(p, "/")
	if p == "" {
		return "/"
	}
	return p
}

// pieces are the parts of hostile paths.
var pieces = []string{
	"login", "x.php", "index.php", "a", "b", "x", "/", "/", "/", "/..", "/.", "..", ".", "..;", ";x", ";x=1", "//", `\`, "%2f", "%2F", "%2e", "%2e%2e/", "%5c",
	"%252f", "%252e", "%25", "%", "%3b", "%3f", "%23", "%00", "%0a", "%0A/", "%6c", "%4C", "%c3%a9", "é", "%20", "%zz", "%2", "?", "#", "@", "%40", "A",
}

func hostile(r *rand.Rand) string {
	var b strings.Builder
	b.WriteByte('/')
	for range 1 + r.IntN(9) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

// Any sequence of steps ends with a reading.
func TestChainsOfServersEndWithAReading(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var s reading.Set
	beyond := 0
	for range 3000 {
		p := hostile(r)
		s.Read(p)
		if s.Beyond() {
			beyond++
			continue
		}
		chain(t, &s, p, func() int { return r.IntN(2 * len(servers)) })
	}
	if beyond > 600 {
		t.Errorf("%d paths have too many readings", beyond)
	}
}

// chain applies up to six steps chosen by next. At the end it decodes what cannot appear
// unescaped, as in all readings.
func chain(t *testing.T, s *reading.Set, p string, next func() int) {
	t.Helper()
	trace := fmt.Sprintf("%q", p)
	got := p
	for range 6 {
		i := next()
		if i >= len(servers) {
			continue
		}
		got = servers[i].step(got)
		trace += fmt.Sprintf(" | %s: %q", servers[i].name, got)
		if !slices.Contains(s.All(), end(necessary(got))) {
			t.Fatalf("%s is none of the readings %q", trace, s.All())
		}
	}
}

// necessary decodes what cannot be written in another way.
func necessary(p string) string {
	return unwritable.ReplaceAllStringFunc(p, unescape)
}

func FuzzReadings(f *testing.F) {
	f.Add("/v1/otp/1%2f..%2f..%2fhealth", []byte{0, 4})
	f.Add("/x/..;/login", []byte{8, 5})
	f.Add("//x/%252flogin", []byte{11, 0, 0, 3})
	f.Fuzz(func(t *testing.T, p string, steps []byte) {
		if !strings.HasPrefix(p, "/") {
			return
		}
		var s reading.Set
		s.Read(p)
		for _, text := range append(s.All(), s.Plain()...) {
			if text != reading.Unread && (text[0] != '/' || len(text) > 1 && strings.HasSuffix(text, "/")) {
				t.Errorf("%q is read as %q", p, text)
			}
		}
		if clean := reading.Clean(p); reading.Clean(clean) != clean || !strings.HasPrefix(clean, "/") || strings.Contains(clean, "//") || strings.Contains(clean+"/", "/../") {
			t.Errorf("%q is clean as %q, and then as %q", p, clean, reading.Clean(clean))
		}
		reading.IsAmbiguous(p)
		if s.Beyond() || s.Plain()[0] == reading.Unread {
			return
		}
		i := 0
		chain(t, &s, p, func() int {
			if i == len(steps) {
				return len(servers)
			}
			i++
			return int(steps[i-1])
		})
	})
}

// If a server reads a plainly written path, the request is counted under it.
func TestPlainReadingsAreCounted(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var s, alone reading.Set
	for range 3000 {
		s.Read(hostile(r))
		if s.Beyond() {
			continue
		}
		for i, text := range s.All() {
			alone.Read(text)
			if len(alone.All()) == 1 && !strings.Contains(text, "%") && !slices.Contains(s.Plain(), text) {
				t.Fatalf("%q is a reading, and not among %q", text, s.Plain())
			}
			if s.PlainOf(i) >= len(s.Plain()) {
				t.Fatalf("%q has no normal form", text)
			}
		}
	}
}

func TestBehindAScript(t *testing.T) {
	var s reading.Set
	for p, want := range map[string][]string{
		"/index.php/login": {"/index.php/login", "/login"}, "/a/b.php/c.php/d": {"/a/b.php/c.php/d", "/c.php/d", "/d"},
		"/login.php": {"/login.php"}, "/login.php/": {"/login.php"}, "/a.phpx/b": {"/a.phpx/b"},
		"/index.php": {"/index.php", "/"}, "/index.php/": {"/index.php", "/"}, "/a/index.php": {"/a/index.php", "/a"}, "/xindex.php": {"/xindex.php"},
	} {
		if s.Read(p); !slices.Equal(s.All(), want) || !slices.Equal(s.Plain(), want) {
			t.Errorf("%q: %q, counted as %q, want %q", p, s.All(), s.Plain(), want)
		}
	}
}

func TestOneReading(t *testing.T) {
	var s reading.Set
	for p, want := range map[string]string{
		"/": "/", "": "/", "/login": "/login", "/login/": "/login", "login": "/login", "*": "/*", "/a.b/..c/.d/e..": "/a.b/..c/.d/e..",
		"/caf%C3%A9": "/café", "/a%20b": "/a b", "/@me": "/@me", "/A": "/A", "/a!b$c&d'(e)*+,=:": "/a!b$c&d'(e)*+,=:", "/...": "/...",
	} {
		s.Read(p)
		if len(s.All()) != 1 || s.All()[0] != want || !slices.Equal(s.Plain(), s.All()) || s.Beyond() || s.Climbs() {
			t.Errorf("%q: %q, counted as %q", p, s.All(), s.Plain())
		}
	}
}

func TestAmbiguousAndClean(t *testing.T) {
	for _, row := range []struct {
		path, clean string
		ambiguous   bool
	}{
		{"/", "/", false},
		{"/login/", "/login/", false},
		{"/Login", "/Login", false},
		{"/caf%c3%a9/a%20b", "/caf%C3%A9/a%20b", false},
		{"/a%40b.example", "/a@b.example", false},
		{"/100%25", "/100%25", false},
		{"/~a/%7Ea", "/~a/~a", false},
		{"/%6cogin", "/login", true},
		{"/a/../login", "/login", true},
		{"/a/.", "/a/", true},
		{"/login/..", "/", true},
		{"/../login", "/login", true},
		{"//login", "/login", true},
		{"/x/..;/login", "/login", true},
		{"/x/..;a=b", "/", true},
		{"/login;x=1", "/login;x=1", true},
		{"/a%2Flogin", "/a/login", true},
		{"/a%5clogin", "/a/login", true},
		{"/%2e%2e/login", "/login", true},
		{"/%252flogin", "/%252flogin", true},
		{"/a%2541", "/a%2541", true},
		{"/login%00", "/login%00", true},
		{"/login%3fx", "/login%3Fx", true},
		{"/login%23x", "/login%23x", true},
		{"/%c0%af", "/%C0%AF", true},
		{"/a%0ab", "/a%0Ab", true},
		{"/a%2", "/a%252", false},
		{"/index.php/login", "/index.php/login", false},
		{"/index.php", "/index.php", false},
		{"/index.php//login", "/index.php/login", true},
		{"", "/", true},
	} {
		if got := reading.IsAmbiguous(row.path); got != row.ambiguous {
			t.Errorf("%q is ambiguous: %v", row.path, got)
		}
		if got := reading.Clean(row.path); got != row.clean {
			t.Errorf("%q is clean as %q, want %q", row.path, got, row.clean)
		}
	}
}

func TestClimbs(t *testing.T) {
	var s reading.Set
	for p, want := range map[string]bool{
		"/a/..": false, "/a/../b": false, "/..": true, "/a/../../b": true, "/%2e%2e%2fb": true, "/..;/b": true, `/..%5cb`: true,
		"/..b": false, "/a/b/%252e%252e/..": false, "/a/%252e%252e/..": true, "/a/..%252f..": true,
	} {
		s.Read(p)
		if s.Climbs() != want {
			t.Errorf("%q climbs: %v", p, s.Climbs())
		}
	}
}

// The work is limited for every path.
func TestBounds(t *testing.T) {
	var s reading.Set
	for _, p := range []string{
		strings.Repeat("//", 8000) + strings.Repeat("/..", 8000),
		"/" + strings.Repeat("a/", 8000) + strings.Repeat("../", 8000),
		"/%" + strings.Repeat("25", 20_000) + "2f",
		strings.Repeat("/%2e%2e;x%5c//", 4000),
		"/a/..%5c..;/%2e%2e//login%23/%253b/b",
	} {
		s.Read(p)
		total := 0
		for _, text := range s.All() {
			total += len(text)
		}
		if n := len(s.All()); !s.Beyond() || n > reading.MaxReadings || total > len(p)+reading.MaxBytes || !slices.Equal(s.Plain(), []string{reading.Unread}) {
			t.Errorf("%.40q: %d readings of %d bytes, beyond %v", p, n, total, s.Beyond())
		}
		if s.PlainOf(len(s.All())-1) != 0 {
			t.Errorf("%.40q is not counted as unread", p)
		}
	}
	// A path with one reading may have any length.
	if s.Read("/" + strings.Repeat("a", 1<<20)); s.Beyond() {
		t.Error("a plain path is too long")
	}
}

func TestFold(t *testing.T) {
	for text, want := range map[string]string{
		"/login": "/login", "/LoGin": "/login", "/É": reading.Fold("/é"), "/K": "/k", "/ſ": "/s", "/\xff\xc0A": "/\xff\xc0a", "/Σς": reading.Fold("/σΣ"), "/ß": "/ß",
	} {
		if got := reading.Fold(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	var s reading.Set
	s.Read("/A//%42/é")
	for i, text := range s.All() {
		if got := s.Folded(i); !strings.EqualFold(got, text) || got != reading.Fold(text) || !utf8.ValidString(got) {
			t.Errorf("%q is folded to %q", text, got)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for _, p := range []string{"/v1/users/12345/orders", "/v1/caf%C3%A9/a%20b", "/a//b", "/v1/otp/1%2f..%2f..%2fhealth", strings.Repeat("/..;/%252f", 200)} {
		b.Run(fmt.Sprintf("%.30s", p), func(b *testing.B) {
			var s reading.Set
			b.ReportAllocs()
			for b.Loop() {
				s.Read(p)
			}
		})
	}
}

package proxy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/proxy"
	"github.com/headgate/headgate/internal/testkit/redistest"
	"github.com/headgate/headgate/store/memory"
)

// identities is who an upstream takes the client for, by cookie, query parameter, header
// field and Authorization. For a list it has the first and the last value.
type identities struct{ Cookie, Query, Header, Auth []string }

const spellingRules = `
domain: api
limits:
  - {name: cookie, match: {path: /cookie}, key: ["cookie:session"], rate: 1/day}
  - {name: query, match: {path: /query}, key: ["query:user_id"], rate: 1/day}
  - {name: header, match: {path: /header}, key: ["header:X-Api-Key"], rate: 1/day}
  - {name: auth, match: {path: /auth}, key: ["header:Authorization"], rate: 1/day}
`

const nobody = "(nobody)"

// attempts returns requests in which one client, whose value is real, tries to look like
// a different client each time.
func attempts() []string {
	var list []string
	add := func(path string, lines ...string) {
		list = append(list, "GET "+path+" HTTP/1.1\r\nHost: h\r\n"+strings.Join(append(lines, "Connection: close\r\n\r\n"), "\r\n"))
	}
	for _, value := range []string{
		"real", " real", "\treal\t", `"real"`, ` "real" `, `"realX`, "r%65al", "%72eal", "%72%65%61%6c", "%72%65%61%6C", "re%61l", `"r%65al"`,
		`j:"real"`, `j:%22real%22`, `j:"\u0072eal"`, "r eal", "r+eal", "r%20eal",
	} {
		add("/cookie", "Cookie: session="+value)
		add("/cookie", "Cookie:  a=b ;  session  ="+value+" ; c=d")
		for _, junk := range []string{"1", "2", "3"} {
			add("/cookie", "Cookie: session="+junk+"; session="+value)
			add("/cookie", "Cookie: session="+value+"; session="+junk)
			add("/cookie", "Cookie: session="+junk, "Cookie: session="+value)
			add("/cookie", "Cookie: session="+junk+"; Session="+value+"; session="+junk+"; s%65ssion="+value+"; session[]="+value)
		}
	}
	for _, pair := range []string{
		"user_id=real", "user%5fid=real", "user.id=real", "user+id=real", "%20user_id=real", "user%20id=real", "user_id[]=real", "user_id[0]=real", "user_id%5B%5D=real",
		"USER_ID=real", "user_id=r%65al", "user_id=re%61l&", "&&user_id=real", "a=1;user_id=real", "user_id=real;b=2", "user_id[x=real",
		"user[id=real", "user_id%00=real", "user_id%00x=real", "[user_id]=real", "[user_id][]=real", "user%00_id=real",
	} {
		add("/query?" + pair)
		for _, junk := range []string{"1", "2", "3"} {
			add("/query?user_id=" + junk + "&" + pair)
			add("/query?" + pair + "&user_id=" + junk)
			add("/query?user.id=" + junk + "&" + pair + "&user.id=" + junk)
			add("/query?user_id=%zz" + junk + "&" + pair)
			add("/query?" + pair + "&" + strings.Repeat("user_id=x&user.id=y&", 3) + "user_id=" + junk)
			many := ""
			for i := range 12 {
				many += fmt.Sprintf("&user_id=%s%d", junk, i)
			}
			add("/query?" + many + "&" + pair)
			add("/query?" + pair + many)
		}
	}
	for _, name := range []string{"X-Api-Key", "x-api-key", "X_Api_Key", "X-Api_Key", "X.Api.Key", "x_API_key"} {
		add("/header", name+": real")
		add("/header", name+":   real  ")
		for _, junk := range []string{"1", "2", "3"} {
			add("/header", "X-Api-Key: "+junk, name+": real")
			add("/header", name+": real", "X-Api-Key: "+junk)
			add("/header", "X-Api-Key: "+junk, name+": real", "X-API-KEY: "+junk)
		}
	}
	// Some servers find no client in these, which share one count.
	for i := range 3 {
		for _, form := range []string{"USER_ID=%d", "user.id=%d", "user_id=%%zz%d", "user_id=%d;x", "user_id[x]=%d", "x;user_id=%d"} {
			add("/query?" + fmt.Sprintf(form, i))
		}
		add("/query?" + strings.Repeat("a&", 1100) + fmt.Sprintf("user_id=%d", i))
		add("/header", fmt.Sprintf("X_Api_Key: %d", i))
		add("/cookie", fmt.Sprintf("Cookie: Session=%d", i))
		add("/cookie", fmt.Sprintf("Cookie: session=%d\x80", i))
	}
	addUnclear(add)
	for _, value := range []string{"Bearer real", "bearer real", "BEARER  real", "Bearer \t real", "bEARER real "} {
		add("/auth", "Authorization: "+value)
	}
	return list
}

// addUnclear adds attempts with values that servers read differently, each next to a
// different junk cookie.
func addUnclear(add func(path string, lines ...string)) {
	for i, value := range []string{`"r\145al"`, `"\162eal"`, `"re\141\154"`, `"\r\e\a\l"`, `"r\eal"`, "\xa0real", "real\xa0\xa0", "\xa0\xa0real\xa0"} {
		add("/cookie", "Cookie: session="+value)
		add("/cookie", fmt.Sprintf("Cookie: session=%s; session=J%d", value, i))
		add("/cookie", fmt.Sprintf("Cookie: session=K%d; session=%s", i, value))
	}
	for i, pairs := range []string{
		"a=b session=real", "a=b\tsession=real", "a=b, session=real", "a=b session = real", "session =real x", `a="x; y" session=real`, "session= real c=d",
		"\xa0session=real", "session\xa0=real", "\x85session=real", "\xa0\x85 session\x85 =real", "%C2%A0session=real", "\xc2\xa0session=real", "a=b,session=real", "a=b\xa0session=real",
	} {
		add("/cookie", "Cookie: "+pairs)
		add("/cookie", fmt.Sprintf("Cookie: session=L%d; %s", i, pairs))
	}
	for _, value := range []string{ // u:xreal
		"dTp4cmVhbA==", "dTp4cmVhbA", "dTp4cmVhbA==QUFB", "dTp4cmVhbA==QUFBQUFB", "dTp4 cmVhbA==", "dTp4-cmVhbA==", "dTp4*cmVhbA==", "dTp4=cmVhbA==", "dT=p4cmVhbA==", "dTp4cmVhbA====", "dTp4cmVhbA=x=",
	} {
		add("/auth", "Authorization: Basic "+value)
		add("/auth", "Authorization: basic   "+value)
	}
	for i := range 3 { // with another scheme, or another word, each time
		for _, form := range []string{
			"Foo%d real", "Token%d  real", "Bearer%d real", "%dBearer real", "Bearer real x%d", "Bearer real\tx%d", "Bearer real, x%d", "x%d Bearer real", "Basic x%d, Bearer real",
			"x%d, Bearer: real", "Bearer real\xa0x%d", `Digest a="%d", Bearer real`, `Digest a="%d Bearer real,"`, "Foo%d dTp4cmVhbA==", "Bearer real =%d", "Foo%d\tx=\"a real b\"", "%d bearer real, x=1", "Bearer%d dTp4*cmVhbA",
		} {
			add("/auth", "Authorization: "+fmt.Sprintf(form, i))
		}
	}
	for _, value := range []string{
		"real", "Bearer: real", "Bearer\xa0real", "Bearer \xa0real", "Bearer \xa0\xa0real", "\xa0Bearer real", "Bearer real\xa0", "Bearer real\x85\x85", "Bearer \x85 real", "Token real", `Bearer "real"`,
	} {
		add("/auth", "Authorization: "+value)
	}
}

// TestSpellingsGiveOneBudgetMore runs in front of real upstreams: of all requests that an
// upstream attributes to one client, a limit of one allows two: one under its value, and
// one under all that is unclear.
func TestSpellingsGiveOneBudgetMore(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) string{
		"net/http": startGo, "php": startPHP, "express": startExpress, "python": startPython,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to, err := url.Parse(start(t))
			if err != nil {
				t.Fatal(err)
			}
			p := newProxy(t, spellingRules, memory.New(), nil, func(o *proxy.Options) { o.Upstream, o.Transport = to, http.DefaultTransport })
			server := httptest.NewServer(p)
			defer server.Close()
			passed := map[string][]string{}
			for _, raw := range attempts() {
				path, _, _ := strings.Cut(strings.TrimPrefix(raw, "GET /"), " ")
				path, _, _ = strings.Cut(path, "?")
				for _, id := range exchangeRaw(t, server.Listener.Addr().String(), raw, path) {
					if id == nobody || strings.Contains(id, "eal") {
						passed[path+" "+id] = append(passed[path+" "+id], raw)
					}
				}
			}
			for id, requests := range passed {
				if len(requests) > 2 {
					t.Errorf("%s passed %d times:\n%q", id, len(requests), requests)
				}
			}
			if len(passed) < 4 {
				t.Errorf("no budget was used: %v", passed)
			}
		})
	}
}

// exchangeRaw sends one request and returns the clients that the upstream read from it,
// or nothing if it was refused.
func exchangeRaw(t *testing.T, address, raw, path string) []string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, raw); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil
	}
	var ids identities
	if err := json.NewDecoder(res.Body).Decode(&ids); err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	list := map[string][]string{"cookie": ids.Cookie, "query": ids.Query, "header": ids.Header, "auth": ids.Auth}[path]
	if strings.Join(list, "") == "" {
		return []string{nobody}
	}
	return list
}

func startGo(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ids := identities{Query: ends(r.URL.Query()["user_id"]), Header: ends(r.Header["X-Api-Key"]), Auth: scheme(r.Header.Get("Authorization"))}
		for _, c := range r.CookiesNamed("session") {
			ids.Cookie = append(ids.Cookie, c.Value)
			if plain, err := url.QueryUnescape(c.Value); err == nil && plain != c.Value { // as gin
				ids.Cookie = append(ids.Cookie, plain)
			}
		}
		ids.Cookie = ends(ids.Cookie)
		_ = json.NewEncoder(w).Encode(ids)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func ends(values []string) []string {
	if n := len(values); n > 1 && values[0] != values[n-1] {
		return []string{values[0], values[n-1]}
	}
	return values[:min(len(values), 1)]
}

func scheme(value string) []string {
	if user, password, ok := (&http.Request{Header: http.Header{"Authorization": {value}}}).BasicAuth(); ok {
		return []string{user + ":" + password}
	}
	if fields := strings.Fields(value); len(fields) == 2 {
		return fields[1:]
	}
	return []string{strings.TrimSpace(strings.TrimPrefix(value, "Bearer "))}
}

const phpUpstream = `<?php
function flat($v) { return is_array($v) ? array_values(array_unique(array_map('strval', array_filter($v, 'is_scalar')))) : ($v === null ? [] : [$v]); }
$field = $_SERVER['HTTP_AUTHORIZATION'] ?? '';
$auth = preg_match('/bearer:?\s+(\S+)/i', $field, $m) ? [$m[1]] : [];
if (($at = strripos($field, 'Bearer ')) !== false) { // as Laravel
  $token = substr($field, $at + 7);
  $auth[] = str_contains($token, ',') ? strstr($token, ',', true) : $token;
}
$auth = array_values(array_unique($auth));
if (preg_match('/^basic\s+(.*)$/i', $_SERVER['HTTP_AUTHORIZATION'] ?? '', $m)) $auth = [mb_convert_encoding(base64_decode($m[1]), 'UTF-8', 'ISO-8859-1')];
echo json_encode(['cookie' => flat($_COOKIE['session'] ?? null), 'query' => flat($_GET['user_id'] ?? null),
  'header' => array_values(array_unique(array_map('trim', explode(',', $_SERVER['HTTP_X_API_KEY'] ?? '')))), 'auth' => $auth]);
`

func startPHP(t *testing.T) string {
	t.Helper()
	php, err := exec.LookPath("php")
	if err != nil {
		t.Skip("there is no php")
	}
	script := filepath.Join(t.TempDir(), "index.php")
	if err := os.WriteFile(script, []byte(phpUpstream), 0o600); err != nil {
		t.Fatal(err)
	}
	address := redistest.FreeAddress(t)
	run(t, exec.Command(php, "-d", "display_errors=0", "-S", address, script), address)
	return "http://" + address
}

const expressUpstream = `
const app = require('express')(), cookies = require('cookie-parser');
app.set('query parser', 'extended');
app.use(cookies());
const flat = v => v === undefined ? [] : [].concat(typeof v === 'object' ? Object.values(v) : v).map(String);
const ends = v => v.length > 1 ? [...new Set([v[0], v.at(-1)])] : v;
app.use((q, r) => r.json({cookie: flat(q.cookies.session), query: ends(flat(q.query.user_id)),
  header: ends((q.get('X-Api-Key') || '').split(',').map(s => s.trim())), auth: [...new Set(auth(q.get('Authorization') || ''))].filter(Boolean)}));
// The ways of the web's tutorials, and of passport.
const auth = text => /^basic\s/i.test(text) ? [Buffer.from(text.slice(6).trim(), 'base64').toString('latin1')] :
  [text.trim().split(/\s+/)[1], (text.match(/(\S+)\s+(\S+)/) || [])[2], text.replace(/^Bearer:?\s+/i, '').trim(), Buffer.from(text.split(' ')[1] || '', 'base64').toString('latin1')];
app.listen(process.argv[2], '127.0.0.1');
`

// startExpress needs the modules express and cookie-parser where node finds them, for
// example in NODE_PATH.
func startExpress(t *testing.T) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node")
	}
	modules := os.Getenv("NODE_PATH")
	if cache, err := os.UserCacheDir(); err == nil && modules == "" {
		modules = filepath.Join(cache, "headgate", "upstreams", "node_modules")
	}
	env := append(os.Environ(), "NODE_PATH="+modules)
	probe := exec.Command(node, "-e", "require('express'); require('cookie-parser')")
	if probe.Env = env; probe.Run() != nil {
		t.Skip("node finds no express and cookie-parser: scripts/ensure-express.sh gets them")
	}
	address := redistest.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	command := exec.Command(node, "-e", strings.Replace(expressUpstream, "process.argv[2]", port, 1))
	command.Env = env
	run(t, command, address)
	return "http://" + address
}

// pythonUpstream reads cookies like Django and http.cookies, and the rest like most
// Python servers.
const pythonUpstream = `
import base64, http.server, http.cookies, json, sys, urllib.parse
ends = lambda v: [v[0], v[-1]] if len(v) > 1 and v[0] != v[-1] else v[:1]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        cookies = {}
        for part in '; '.join(self.headers.get_all('Cookie') or []).split(';'):
            name, _, value = part.partition('=') if '=' in part else ('', '', part)
            cookies[name.strip()] = http.cookies._unquote(value.strip())
        session = [cookies['session']] if 'session' in cookies else []
        try: session += [m.value for n, m in http.cookies.SimpleCookie('; '.join(self.headers.get_all('Cookie') or [])).items() if n == 'session']
        except http.cookies.CookieError: pass
        query = urllib.parse.parse_qs(self.path.partition('?')[2], keep_blank_values=True)
        scheme, _, rest = (self.headers.get('Authorization') or '').strip().partition(' ')
        auth = ends(rest.split() or [scheme]) if scheme.lower() == 'bearer' else [scheme] if not rest else rest.split()[:1]
        if scheme.lower() == 'basic':
            try: auth = [base64.b64decode(rest.strip()).decode('latin-1')]
            except ValueError: pass
        body = json.dumps({'cookie': ends(session), 'query': ends(query.get('user_id', [])),
            'header': ends(self.headers.get_all('X-Api-Key') or []), 'auth': auth}).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
`

func startPython(t *testing.T) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	address := redistest.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	run(t, exec.Command(python, "-c", pythonUpstream, port), address)
	return "http://" + address
}

// run starts an upstream and waits until it listens.
func run(t *testing.T, command *exec.Cmd, address string) {
	t.Helper()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = conn.Close()
			return
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Fatal("the upstream does not listen")
}

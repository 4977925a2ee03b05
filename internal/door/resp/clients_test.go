package resp_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/door/resp"
)

// tool returns the path of a program. Without it, the test is skipped, or fails if
// HEADGATE_REQUIRE_REDIS is 1, as in make test.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("HEADGATE_REQUIRE_REDIS") == "1" {
		t.Fatalf("%v: run scripts/ensure.sh %s", err, name)
	} else if err != nil {
		t.Skip(err)
	}
	return path
}

func (d *door) port(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(d.addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestRedisCLI(t *testing.T) {
	t.Parallel()
	cli := tool(t, "redis-cli")
	d := open(t, func(o *resp.Options) { o.Password = "secret" })
	for _, row := range []struct {
		flags []string
		input string
		want  string
	}{
		{nil, "CL.THROTTLE user123 15 30 60", "0\n16\n15\n-1\n2\n"},
		{[]string{"-3"}, "HG.CHECK api user ann path /queue", "allowed (true)\nrule queue\nlimit 2\nremaining 1\nretry_after_ms 0\nreset_after_ms 1000\nreason ok\ndelay_ms 0\naction allow\n"},
		{nil, "PING\nECHO \"a b\"\nSELECT 0\nNO.SUCH x", "PONG\na b\nOK\nERR unknown command 'NO.SUCH', with args beginning with: 'x' \n\n"},
		{[]string{"-n", "1"}, "PING", "PONG\n"},
	} {
		cmd := exec.Command(cli, append([]string{"-h", "127.0.0.1", "-p", d.port(t), "--no-auth-warning", "-a", "secret"}, row.flags...)...)
		cmd.Stdin = strings.NewReader(row.input + "\n")
		out, err := cmd.Output()
		if got := string(out); err != nil || got != row.want && !strings.HasSuffix(got, row.want) {
			t.Errorf("%s: %v\n got %q\nwant %q", row.input, err, got, row.want)
		}
	}
}

func TestRedisBenchmark(t *testing.T) {
	t.Parallel()
	d := open(t)
	out, err := exec.Command(tool(t, "redis-benchmark"),
		"-p", d.port(t), "-c", "20", "-P", "16", "-n", "20000", "-e", "-q", "CL.THROTTLE", "hot", "99", "1", "1000000").CombinedOutput()
	if err != nil || strings.Contains(string(out), "Error from server") || !strings.Contains(string(out), "requests per second") {
		t.Errorf("%v\n%s", err, out)
	}
	// All requests have one key: exactly its capacity was allowed.
	if s := d.Stats(); s.ThrottleAllowed != 100 || s.ThrottleAllowed+s.ThrottleRefused < 20_000 {
		t.Errorf("%+v", s)
	}
}

// rueidis pipelines automatically, and starts with RESP3 and tracking.
func TestRueidis(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*rueidis.ClientOption){
		"RESP3 with tracking": func(*rueidis.ClientOption) {},
		"RESP2":               func(o *rueidis.ClientOption) { o.AlwaysRESP2, o.DisableCache = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, func(o *resp.Options) { o.Password = "secret" })
			o := rueidis.ClientOption{InitAddress: []string{d.addr}, Password: "secret", ClientName: "tester"}
			change(&o)
			c, err := rueidis.NewClient(o)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx := context.Background()
			for _, want := range [][]int64{{0, 2, 1, -1, 60}, {0, 2, 0, -1, 120}, {1, 2, 0, 60, 120}} {
				if got, err := c.Do(ctx, c.B().ClThrottle().Key("k").MaxBurst(1).CountPerPeriod(1).Period(60).Build()).AsIntSlice(); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%v, %v, want %v", got, err, want)
				}
			}
			var batch rueidis.Commands
			for i := range 100 {
				batch = append(batch, c.B().Arbitrary("HG.CHECK").Args("api", "user", fmt.Sprint(i), "path", "/queue").Build())
			}
			for i, answer := range c.DoMulti(ctx, batch...) {
				m, err := answer.ToArray()
				if name != "RESP2" {
					var fields map[string]rueidis.RedisMessage
					if fields, err = answer.AsMap(); err == nil {
						m = []rueidis.RedisMessage{fields["remaining"]}
					}
				} else if err == nil {
					m = m[3:]
				}
				if err != nil {
					t.Fatalf("check %d: %v", i, err)
				}
				if left, err := m[0].AsInt64(); err != nil || left != 1 {
					t.Errorf("check %d: %d left, %v", i, left, err)
				}
			}
		})
	}
}

const ioredisScript = `
const Redis = require('ioredis');
const redis = new Redis({port: Number(process.argv[2]), password: 'secret', connectionName: 'tester', maxRetriesPerRequest: 0});
(async () => {
  const pipeline = redis.pipeline();
  for (let i = 0; i < 3; i++) pipeline.call('CL.THROTTLE', 'k', 1, 1, 60);
  console.log(JSON.stringify((await pipeline.exec()).map(([err, answer]) => err ? err.message : answer)));
  console.log(JSON.stringify(await redis.call('HG.CHECK', 'api', 'path', '/queue', 'user', 'ann')));
  await redis.call('NO.SUCH').catch((err) => console.log(err.message));
  console.log(await redis.quit());
})().catch((err) => { console.error(err); process.exit(1); });
`

// It is skipped unless HEADGATE_IOREDIS names a folder with ioredis, for example after
// npm install --prefix /tmp/ioredis ioredis@5.
func TestIoredis(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("HEADGATE_IOREDIS")
	if folder == "" {
		t.Skip("HEADGATE_IOREDIS is not set")
	}
	d := open(t, func(o *resp.Options) { o.Password = "secret" })
	script := filepath.Join(t.TempDir(), "script.js")
	if err := os.WriteFile(script, []byte(ioredisScript), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(tool(t, "node"), script, d.port(t))
	cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(folder, "node_modules"))
	out, err := cmd.CombinedOutput()
	const want = "[[0,2,1,-1,60],[0,2,0,-1,120],[1,2,0,60,120]]\n" +
		"[1,\"queue\",2,1,0,1000,\"ok\",0,\"allow\"]\n" +
		"ERR unknown command 'NO.SUCH', with args beginning with: \nOK\n"
	if err != nil || string(out) != want {
		t.Errorf("%v\n got %s\nwant %s", err, out, want)
	}
}

const redisPyScript = `
import sys, redis
r = redis.Redis(port=int(sys.argv[1]), password='secret', client_name='tester')
pipe = r.pipeline(transaction=False)
for i in range(10000):
    pipe.execute_command('CL.THROTTLE', 'k', 99, 1, 60)
answers = pipe.execute()
print(len(answers), sum(1 - a[0] for a in answers), answers[0], answers[-1])
print(r.execute_command('HG.CHECK', 'api', 'path', '/queue', 'user', 'ann'))
for command in (('NO.SUCH',), ('SUBSCRIBE', 'a'), ('MULTI',), ('GET', 'a'), ('CL.THROTTLE', 'k')):
    try:
        print(r.execute_command(*command))
    except redis.ResponseError as e:
        print(e)
try:
    redis.Redis(port=int(sys.argv[1]), password='wrong').ping()
except redis.ResponseError as e:
    print(e)
print(r.ping(), r.client_getname())
`

func TestRedisPy(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("/usr/bin/python3") // it finds Debian's python3-redis
	if err == nil {
		err = exec.Command(python, "-c", "import redis").Run()
	}
	if err != nil {
		t.Skip("there is no redis-py: ", err)
	}
	d := open(t, func(o *resp.Options) { o.Password = "secret" })
	out, err := exec.Command(python, "-c", redisPyScript, d.port(t)).CombinedOutput()
	const want = "10000 100 [0, 100, 99, -1, 60] [1, 100, 0, 60, 6000]\n" +
		"[1, b'queue', 2, 1, 0, 1000, b'ok', 0, b'allow']\n" +
		"unknown command 'NO.SUCH', with args beginning with: \n" +
		"unknown command 'SUBSCRIBE', with args beginning with: 'a' \n" +
		"unknown command 'MULTI', with args beginning with: \n" +
		"unknown command 'GET', with args beginning with: 'a' \n" +
		"Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]\n" +
		"WRONGPASS invalid username-password pair or user is disabled.\n" +
		"True tester\n"
	if err != nil || string(out) != want {
		t.Errorf("%v\n got %s\nwant %s", err, out, want)
	}
}

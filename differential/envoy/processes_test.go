package envoy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
)

// binaries builds the original and Headgate, and finds a Redis. Without one of them the test
// is skipped.
func binaries(t *testing.T) (original, headgate string) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("there is no redis-server")
	}
	dir := t.TempDir()
	original, headgate = filepath.Join(dir, "original"), filepath.Join(dir, "headgate")
	if out, err := exec.Command("go", "mod", "download").CombinedOutput(); err != nil { //nolint:noctx // the test's own time is the bound
		t.Skipf("the original cannot be fetched: %v: %s", err, out)
	}
	build(t, ".", original, "github.com/envoyproxy/ratelimit/src/service_cmd")
	build(t, "../..", headgate, "./cmd/headgate")
	return original, headgate
}

func build(t *testing.T, dir, to, what string) {
	t.Helper()
	c := exec.Command("go", "build", "-o", to, what) //nolint:noctx,gosec // ours
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", what, err, out)
	}
}

// port returns a free port below those that the kernel uses for connections: nobody gets it
// before the process that it is for.
func port(t *testing.T) string {
	t.Helper()
	for range 200 {
		p := strconv.Itoa(20000 + rand.IntN(10000))
		if l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:"+p); err == nil {
			_ = l.Close()
			return p
		}
	}
	t.Fatal("no free port")
	return ""
}

// start runs a process until the test ends.
func start(t *testing.T, environment []string, name string, args ...string) {
	t.Helper()
	c := exec.Command(name, args...) //nolint:noctx,gosec // ended below
	c.Env = environment
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		ended := time.AfterFunc(5*time.Second, func() { _ = c.Process.Kill() })
		_ = c.Wait()
		ended.Stop()
		if t.Failed() {
			text := said.String()
			t.Logf("%s said:\n%s", filepath.Base(name), text[max(0, len(text)-4000):])
		}
	})
}

// until polls until something is true.
func until(t *testing.T, what string, ready func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ready(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready after 30 s", what)
		}
	}
}

// redis returns the address of a separate Redis.
func redis(t *testing.T) string {
	t.Helper()
	p := port(t)
	start(t, os.Environ(), "redis-server", "--port", p, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	address := "127.0.0.1:" + p
	until(t, "redis", func() bool {
		c, err := net.DialTimeout("tcp", address, time.Second) //nolint:noctx // it has its time
		if err != nil {
			return false
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "PING\r\n")
		answer := make([]byte, 5)
		_, err = io.ReadFull(c, answer)
		return err == nil && string(answer) == "+PONG"
	})
	return address
}

// service is one of the two, with its two doors.
type service struct {
	name   string
	client envoy.RateLimitServiceClient
	url    string
	http   *http.Client
}

// run starts a service with the environment that both understand. Without a Redis address
// Headgate counts in memory.
func run(t *testing.T, root, redis, name, binary string, args ...string) *service {
	t.Helper()
	api, rls := port(t), port(t)
	environment := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"HOST=127.0.0.1", "PORT=" + api, "GRPC_HOST=127.0.0.1", "GRPC_PORT=" + rls, "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=" + port(t),
		"RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false",
		"LOG_LEVEL=ERROR", "LIMIT_RESPONSE_HEADERS_ENABLED=true",
		"HEADGATE_COMPAT=envoy", "HEADGATE_LISTEN_RESP=off",
	}
	if redis != "" {
		environment = append(environment, "BACKEND_TYPE=redis", "REDIS_TYPE=SINGLE", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis, "REDIS_TIMEOUT=10s")
	}
	start(t, environment, binary, args...)
	s := &service{name: name, url: "http://127.0.0.1:" + api, http: &http.Client{Timeout: 30 * time.Second}}
	until(t, name, func() bool {
		r, err := s.http.Get(s.url + "/healthcheck") //nolint:noctx // the client has its time
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	connection, err := grpc.NewClient("127.0.0.1:"+rls, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	s.client = envoy.NewRateLimitServiceClient(connection)
	return s
}

// asJSON and asGRPC send a request to a service.
type door bool

const (
	asGRPC door = false
	asJSON door = true
)

func (s *service) ask(ctx context.Context, by door, r *envoy.RateLimitRequest) (*envoy.RateLimitResponse, error) {
	if by == asGRPC {
		return s.client.ShouldRateLimit(ctx, r)
	}
	body, err := protojson.Marshal(r)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer, err := s.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if body, err = io.ReadAll(answer.Body); err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests {
		return nil, fmt.Errorf("status %d: %s", answer.StatusCode, body)
	}
	var response envoy.RateLimitResponse
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, &response); err != nil {
		return nil, err
	}
	if over := answer.StatusCode == http.StatusTooManyRequests; over != (response.GetOverallCode() == envoy.RateLimitResponse_OVER_LIMIT) {
		return nil, errors.New("status " + strconv.Itoa(answer.StatusCode) + " with " + response.GetOverallCode().String())
	}
	return &response, nil
}

// folder writes the rules of all domains where RUNTIME_ROOT leads.
func folder(t *testing.T, domains []*domain) string {
	t.Helper()
	root := t.TempDir()
	config := filepath.Join(root, "ratelimit", "config")
	if err := os.MkdirAll(config, 0o755); err != nil { //nolint:gosec // rules are no secret
		t.Fatal(err)
	}
	names := []string{"%s.yaml", "%s.yml", "%s", "%s.json", ".%s.yaml"} // the original takes any
	for i, d := range domains {
		name := strings.ReplaceAll(names[i%len(names)], "%s", d.name)
		if err := os.WriteFile(filepath.Join(config, name), []byte(d.yaml.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

//go:build unix

package rls_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/decide/admission"
	"github.com/headgate/headgate/internal/door/rls"
)

// benchServer is the environment variable that makes this test binary a server, so that
// its CPU time can be measured separately.
const benchServer = "HEADGATE_RLS_BENCH_SERVER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(benchServer); kind != "" {
		if err := benchmarked(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const benchRules = "domain: api\nlimits: [{name: user, match: {attributes: {user: {present: true}}}, key: [user], rate: 1000000/minute}]"

// benchmarked serves until its standard input ends. It prints its address and then, for
// every line it reads, its CPU time so far in microseconds.
func benchmarked(kind string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a separate process
	if err != nil {
		return err
	}
	serve, err := server(kind)
	if err != nil {
		return err
	}
	go func() { _ = serve(l) }()
	fmt.Println(l.Addr())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		fmt.Println(u.Utime.Nano()/1000 + u.Stime.Nano()/1000)
	}
	return nil
}

func server(kind string) (func(net.Listener) error, error) {
	switch kind {
	case "empty":
		s := grpc.NewServer()
		s.RegisterService(&grpc.ServiceDesc{
			ServiceName: "envoy.service.ratelimit.v3.RateLimitService", HandlerType: (*any)(nil),
			Methods: []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: func(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				return &emptypb.Empty{}, read(&emptypb.Empty{})
			}}},
		}, struct{}{})
		return s.Serve, nil
	case "always_ok":
		s := grpc.NewServer()
		envoy.RegisterRateLimitServiceServer(s, alwaysOK{})
		return s.Serve, nil
	case "headgate", "headgate_no_headers":
		o := rls.Options{Asker: admission.Asker{Clock: time.Now}}
		if kind == "headgate_no_headers" {
			o.Dialect = answer.None
		}
		return newService(&testing.B{}, setup{rules: benchRules, rls: o}).server.Serve, nil
	}
	return nil, fmt.Errorf("no such server: %s", kind)
}

// alwaysOK allows every request.
type alwaysOK struct {
	envoy.UnimplementedRateLimitServiceServer
}

func (alwaysOK) ShouldRateLimit(_ context.Context, r *envoy.RateLimitRequest) (*envoy.RateLimitResponse, error) {
	if len(r.GetDescriptors()) != 1 {
		return nil, fmt.Errorf("%d descriptors", len(r.GetDescriptors()))
	}
	return &envoy.RateLimitResponse{OverallCode: envoy.RateLimitResponse_OK}, nil
}

// raw is a codec for encoded messages, so that the load generator uses little CPU.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, _ := v.([]byte)
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	if b, ok := v.(*[]byte); ok {
		*b = data.Materialize()
	}
	return nil
}

// BenchmarkServer calls each server, a separate process, over loopback with 64 callers on
// 2 connections, and reports the server's CPU seconds per million answers. empty does
// not decode or encode messages; always_ok does but decides nothing.
func BenchmarkServer(b *testing.B) {
	for _, kind := range []string{"empty", "always_ok", "headgate", "headgate_no_headers"} {
		b.Run(kind, func(b *testing.B) { benchmarkServer(b, kind) })
	}
}

func benchmarkServer(b *testing.B, kind string) {
	cmd := exec.Command(os.Args[0]) //nolint:noctx // ends with its standard input
	cmd.Env = append(os.Environ(), benchServer+"="+kind)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait()
	}()
	lines := bufio.NewReader(out)
	address, err := lines.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	var connections []*grpc.ClientConn
	for range 2 {
		c, err := grpc.NewClient(strings.TrimSpace(address), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{})))
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		connections = append(connections, c)
	}
	requests := encoded(b, kind)
	load(b, connections, requests, 2000, kind) // to warm up
	before := used(b, in, lines)
	b.ResetTimer()
	load(b, connections, requests, b.N, kind)
	b.StopTimer()
	b.ReportMetric((used(b, in, lines)-before)/float64(b.N), "cpu-s/1M")
}

// encoded returns encoded requests of a thousand users.
func encoded(b *testing.B, kind string) [][]byte {
	if kind == "empty" {
		return [][]byte{{}}
	}
	var all [][]byte
	for i := range 1000 {
		wire, err := proto.Marshal(request(descriptor("remote_address", "198.51.100.7", "user", "user-"+strconv.Itoa(i))))
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, wire)
	}
	return all
}

// used returns the server's CPU time in microseconds.
func used(b *testing.B, in io.Writer, lines *bufio.Reader) float64 {
	if _, err := io.WriteString(in, "\n"); err != nil {
		b.Fatal(err)
	}
	line, err := lines.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// load sends n requests and checks the answers.
func load(b *testing.B, connections []*grpc.ClientConn, requests [][]byte, n int, kind string) {
	const callers = 64
	var next atomic.Int64
	var wg sync.WaitGroup
	admitted := []byte{8, 1} // overall_code: OK
	for i := range callers {
		wg.Go(func() {
			var answer []byte
			for {
				j := int(next.Add(1)) - 1
				if j >= n {
					return
				}
				err := connections[i%len(connections)].Invoke(context.Background(),
					"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", requests[j%len(requests)], &answer)
				if err != nil || kind != "empty" && !bytes.HasPrefix(answer, admitted) {
					b.Errorf("%x, %v", answer, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

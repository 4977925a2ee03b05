package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that raw replaces
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

// raw sends bytes unchanged, like a client with a bug.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	text, _ := v.(string)
	return mem.BufferSlice{mem.SliceBuffer(text)}, nil
}

func (raw) Unmarshal(mem.BufferSlice, any) error { return nil }

var _ encoding.CodecV2 = raw{}

// Unreadable messages are reported as the caller's error, and the connection stays
// open.
func TestLimiterIsSentRubbish(t *testing.T) {
	f := run(t, twoDoorsRules, http.NotFoundHandler(), inFile(t), func(c *config.Config) { c.Door("grpc").Address = "127.0.0.1:0" })
	conn := dialGRPC(t, f.Addr(doorGRPC))
	for _, row := range []struct {
		name, text string
		want       codes.Code
	}{
		{"nothing", "", codes.InvalidArgument},
		{"not UTF-8", "\x0a\x02\xff\xfe", codes.InvalidArgument},
		{"cut off", "\x0a\x7fapi", codes.InvalidArgument},
		{"no field", "\x07\x07\x07", codes.InvalidArgument},
		{"fields of tomorrow", "\x0a\x03api\xf8\x07\x01", codes.OK},
		{"a value that is not UTF-8", "\x0a\x03api\x12\x07\x0a\x01a\x12\x02\xc3\x28", codes.InvalidArgument},
		{"too large", "\x0a\x80\x80\x80\x01" + strings.Repeat("x", 2<<20), codes.ResourceExhausted},
	} {
		err := conn.Invoke(t.Context(), headgatev1.Limiter_Check_FullMethodName, row.text, nil, grpc.ForceCodecV2(raw{}))
		if grpcstatus.Code(err) != row.want {
			t.Errorf("%s: %v, want %s", row.name, err, row.want)
		}
	}
	if _, err := headgatev1.NewLimiterClient(conn).Check(t.Context(), &headgatev1.CheckRequest{Domain: "api"}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// gRPC requires the API's tokens as well; health and Envoy do not have any.
func TestLimiterAsksForAToken(t *testing.T) {
	f := run(t, twoDoorsRules, http.NotFoundHandler(), inFile(t), func(c *config.Config) {
		c.Door("grpc").Address, c.Tokens = "127.0.0.1:0", []config.Secret{"first-0123456789", "second-012345678"}
	})
	conn := dialGRPC(t, f.Addr(doorGRPC))
	limiter := headgatev1.NewLimiterClient(conn)
	for _, row := range []struct {
		name, value string
		want        codes.Code
	}{
		{"authorization", "Bearer second-012345678", codes.OK},
		{"x-headgate-token", "first-0123456789", codes.OK},
		{"authorization", "Bearer first", codes.Unauthenticated},
		{"authorization", "first-0123456789", codes.Unauthenticated},
		{"x-headgate-token", "", codes.Unauthenticated},
		{"x-other", "first-0123456789", codes.Unauthenticated},
	} {
		_, err := limiter.Check(metadata.AppendToOutgoingContext(t.Context(), row.name, row.value), &headgatev1.CheckRequest{Domain: "api"})
		if grpcstatus.Code(err) != row.want {
			t.Errorf("%s: %s: %v, want %s", row.name, row.value, err, row.want)
		}
	}
	health, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "headgate.v1.Limiter"})
	if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", health, err)
	}
}

// The service is found by reflection, on its own port or a shared one, and its requests
// are counted separately from Envoy's.
func TestLimiterIsFoundAndCounted(t *testing.T) {
	for name, listen := range map[string]addresses{
		"a port of its own": {"grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
		"one for all":       {"shared": "127.0.0.1:0", "admin": "127.0.0.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			f := run(t, twoDoorsRules, http.NotFoundHandler(), inFile(t), func(c *config.Config) { listenAt(c, listen) })
			address := f.Addr(doorGRPC)
			if listen["shared"] != "" {
				address = f.Addr(doorShared)
			}
			conn := dialGRPC(t, address)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&reflectionpb.ServerReflectionRequest{
				MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "headgate.v1.Limiter"},
			}); err != nil {
				t.Fatal(err)
			}
			if found, err := stream.Recv(); err != nil || len(found.GetFileDescriptorResponse().GetFileDescriptorProto()) != 1 {
				t.Errorf("%v, %v", found, err)
			}
			for range 2 {
				if _, err := headgatev1.NewLimiterClient(conn).Check(t.Context(), &headgatev1.CheckRequest{
					Domain: "api", Attributes: map[string]string{"path": "/orders"},
				}); err != nil {
					t.Fatal(err)
				}
			}
			_, metrics := f.get(t, f.adminURL("/metrics"))
			for _, want := range []string{
				`headgate_requests_total{door="grpc_api",outcome="allowed"} 1`, `headgate_requests_total{door="grpc_api",outcome="queued"} 1`,
				`headgate_requests_total{door="grpc",outcome="allowed"} 0`,
			} {
				if !strings.Contains(metrics, want+"\n") {
					t.Errorf("no %s", want)
				}
			}
		})
	}
}

// The calls in docs/connect/grpc.md work, and its rules are those of the example.
func TestLimiterAsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/connect/grpc.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../../examples/grpc/rules.yaml")
	if err != nil || !strings.Contains(string(page), "```yaml\n"+string(example)+"```") {
		t.Errorf("the page shows other rules than the example has: %v", err)
	}
	f := run(t, string(example), nil, func(c *config.Config) { c.Door("grpc").Address = "127.0.0.1:0" })
	conn := dialGRPC(t, f.Addr(doorGRPC))
	calls := regexp.MustCompile(`-d '({.*?})' 127\.0\.0\.1:8081 headgate\.v1\.Limiter/([A-Za-z]+)`).FindAllSubmatch(page, -1)
	if len(calls) < 4 {
		t.Fatalf("%d calls", len(calls))
	}
	reservation := ""
	for _, c := range calls {
		body, method := strings.Replace(string(c[1]), "Q6NQS3y2IMxc…", reservation, 1), string(c[2])
		in, out := messageNamed(t, method+"Request"), messageNamed(t, method+"Response")
		if err := protojson.Unmarshal([]byte(body), in); err != nil {
			t.Fatalf("%s: %v", c[0], err)
		}
		if err := conn.Invoke(t.Context(), "/headgate.v1.Limiter/"+method, in, out); err != nil {
			t.Errorf("%s: %v", c[0], err)
		}
		if reserved, ok := out.(*headgatev1.ReserveResponse); ok {
			reservation = reserved.GetReservation()
		}
	}
}

func messageNamed(t *testing.T, name string) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("headgate.v1." + name))
	if err != nil {
		t.Fatal(err)
	}
	return kind.New().Interface()
}

// A reservation of one node is committed at another, at any door, once. Without the
// store, the rules' policies apply and tokens stay valid.
func TestLimiterOfTwoNodes(t *testing.T) {
	server := redistest.Standalone(t)
	open := func(c *config.Config) { c.Door("grpc").Address = "127.0.0.1:0" }
	nodes := [2]*fixture{run(t, exportRules, nil, onRedis(server.Addr), open), run(t, exportRules, nil, onRedis(server.Addr), open)}
	var limiters [2]headgatev1.LimiterClient
	for i, f := range nodes {
		f.journal.await(t, "store connected")
		limiters[i] = headgatev1.NewLimiterClient(dialGRPC(t, f.Addr(doorGRPC)))
	}
	ask := message[headgatev1.ReserveRequest](t, aLanguage)
	reserved, err := limiters[0].Reserve(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	commit := &headgatev1.CommitRequest{Reservation: reserved.GetReservation(), Cost: new(int64(150))}
	var done atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 { // a client that retries everywhere
		wg.Go(func() {
			if i < 4 {
				_, out := nodes[i%2].ask(t, "/v1/commit", fmt.Sprintf(`{"reservation":%q,"cost":150}`, reserved.GetReservation()))
				if out["committed"] == true {
					done.Add(1)
				}
				return
			}
			out, err := limiters[i%2].Commit(t.Context(), commit)
			if err != nil {
				t.Error(err)
			}
			if out.GetSettlement().GetEnding() == headgatev1.Ending_ENDING_DONE {
				done.Add(1)
			}
		})
	}
	wg.Wait()
	peek := &headgatev1.CheckRequest{Domain: ask.GetDomain(), Attributes: ask.GetAttributes(), Peek: true}
	left, err := limiters[1].Check(t.Context(), peek)
	if err != nil || done.Load() != 1 || left.GetVerdict().GetRemaining() != 850 {
		t.Errorf("%d of 16 commits were done, %v left of 1000, %v; want 1 and 850", done.Load(), left, err)
	}
	if reserved, err = limiters[0].Reserve(t.Context(), ask); err != nil {
		t.Fatal(err)
	}
	commit.Reservation = reserved.GetReservation()
	server.Kill()
	if _, err := limiters[1].Commit(t.Context(), commit); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("without a store: %v", err)
	}
	if left, err = limiters[1].Check(t.Context(), peek); err != nil || left.GetVerdict().GetReason() != headgatev1.Reason_REASON_FAIL_OPEN || left.GetVerdict().Remaining != nil {
		t.Errorf("without a store: %v, %v", left, err)
	}
}

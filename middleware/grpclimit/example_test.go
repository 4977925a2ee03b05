package grpclimit_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/grpclimit"
	"github.com/headgate/headgate/store/memory"
)

// serve runs a server in memory and connects to it.
func serve(limit grpc.ServerOption, options ...grpc.DialOption) (healthpb.HealthClient, func()) {
	l := bufconn.Listen(1 << 16)
	server := grpc.NewServer(limit)
	healthpb.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(l) }()
	connection, err := grpc.NewClient("passthrough:///memory", append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
	)...)
	if err != nil {
		panic(err)
	}
	return healthpb.NewHealthClient(connection), func() {
		_ = connection.Close()
		server.Stop()
	}
}

func ExampleUnaryServer() {
	limiter := headgate.New(memory.New())
	client, stop := serve(grpc.UnaryInterceptor(
		grpclimit.UnaryServer(limiter, headgate.PerHour(2), grpclimit.ByMetadata("x-api-key")),
	))
	defer stop()
	for range 3 {
		_, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{})
		retry, refused := grpclimit.RetryAfter(err)
		fmt.Println(status.Code(err), refused, retry.Round(time.Minute))
	}
	// Output:
	// OK false 0s
	// OK false 0s
	// ResourceExhausted true 30m0s
}

// A client that keeps within its server's limit is not refused.
func ExampleUnaryClient() {
	limiter := headgate.New(memory.New())
	pace := grpclimit.UnaryClient(limiter, headgate.PerSecond(100).WithBurst(1), grpclimit.Wait(time.Second))
	client, stop := serve(grpc.EmptyServerOption{}, grpc.WithUnaryInterceptor(pace))
	defer stop()
	began := time.Now()
	for range 6 {
		if _, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{}); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(time.Since(began) >= 50*time.Millisecond)
	// Output: true
}

func ExampleAlso() {
	limiter := headgate.New(memory.New())
	byKey := grpclimit.ByMetadata("x-api-key")
	interceptor := grpclimit.UnaryServer(limiter, headgate.PerSecond(10), byKey, grpclimit.Name("second"),
		grpclimit.Also(headgate.PerDay(1), grpclimit.Name("day")))
	client, stop := serve(grpc.UnaryInterceptor(interceptor))
	defer stop()
	for range 2 {
		_, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{})
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// ResourceExhausted
}

// Each user has the limit of a plan; without a plan, the interceptor's limit applies.
func ExampleLimitBy() {
	plans := map[string]headgate.Limit{"pro": headgate.PerHour(600), "staff": headgate.Unlimited()} // made once
	users := map[string]string{"alice": "pro"}                                                      // such as from a database
	user := func(c *grpclimit.Call) string {
		if names := c.Metadata("x-user"); len(names) > 0 {
			return names[0]
		}
		return ""
	}
	limiter := headgate.New(memory.New())
	client, stop := serve(grpc.UnaryInterceptor(grpclimit.UnaryServer(limiter, headgate.PerHour(1),
		grpclimit.ByMetadata("x-user"), grpclimit.LimitBy(func(c *grpclimit.Call) (headgate.Limit, bool) {
			limit, ok := plans[users[user(c)]]
			return limit, ok
		}))))
	defer stop()
	for _, name := range []string{"alice", "alice", "bob", "bob"} {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "x-user", name)
		_, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
		fmt.Println(name, status.Code(err))
	}
	// Output:
	// alice OK
	// alice OK
	// bob OK
	// bob ResourceExhausted
}

// Two failed logins an hour. Calls that end with another code cost nothing.
func ExampleChargeOn() {
	limit := grpclimit.UnaryServer(headgate.New(memory.New()), headgate.PerHour(2).WithAlgorithm(headgate.SlidingLog),
		grpclimit.ChargeOn(codes.Unauthenticated, codes.PermissionDenied))
	login := func(password string) error {
		_, err := limit(context.Background(), password, &grpc.UnaryServerInfo{FullMethod: "/users.Login/Login"},
			func(_ context.Context, request any) (any, error) {
				if request != "right" {
					return nil, status.Error(codes.Unauthenticated, "wrong password")
				}
				return "welcome", nil
			})
		return err
	}
	for _, password := range []string{"right", "wrong", "right", "wrong", "wrong"} {
		fmt.Println(status.Code(login(password)))
	}
	// Output:
	// OK
	// Unauthenticated
	// OK
	// Unauthenticated
	// ResourceExhausted
}

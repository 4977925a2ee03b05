// Package headgatev1 is Headgate's API over gRPC: the messages, a client and what
// a server has to implement, generated from limiter.proto. docs/connect/grpc.md explains how
// a server is asked.
//
//	conn, err := grpc.NewClient("127.0.0.1:8081", grpc.WithTransportCredentials(insecure.NewCredentials()))
//	…
//	answer, err := headgatev1.NewLimiterClient(conn).Check(ctx, &headgatev1.CheckRequest{
//		Domain:     "api",
//		Attributes: map[string]string{"path": "/login", "client_ip": "198.51.100.7"},
//	})
//	if err == nil && !answer.GetVerdict().GetAllowed() {
//		// Refuse the request.
//	}
package headgatev1

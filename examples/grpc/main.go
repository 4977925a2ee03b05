// Command grpc uses Headgate over gRPC: it reserves the estimated cost of a call to a
// language model, makes the call, and commits the actual cost.
//
//	headgate serve --config examples/grpc/headgate.yaml &
//	go run ./examples/grpc
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

func main() {
	conn, err := grpc.NewClient("127.0.0.1:8081", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		err = ask(context.Background(), headgatev1.NewLimiterClient(conn), os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// estimate is the highest cost of a call.
const estimate = 500

// ask calls the model once, if the limit allows it.
func ask(ctx context.Context, limiter headgatev1.LimiterClient, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	reserved, err := limiter.Reserve(ctx, &headgatev1.ReserveRequest{
		Domain:     "api",
		Attributes: map[string]string{"path": "/v1/chat", "header:X-Api-Key": "k"},
		Cost:       new(int64(estimate)),
	})
	if err != nil {
		return err
	}
	v := reserved.GetVerdict()
	if !v.GetAllowed() {
		return fmt.Errorf("refused by %s: %s; again in %d ms", v.GetRule(), v.GetReason(), v.GetRetryAfterMs())
	}
	_, _ = fmt.Fprintf(out, "reserved %d, %d left of %d\n", estimate, v.GetRemaining(), v.GetLimit())

	took, err := callModel()
	if err != nil {
		_, cancelErr := limiter.Cancel(ctx, &headgatev1.CancelRequest{Reservation: reserved.GetReservation()})
		return errors.Join(err, cancelErr)
	}
	// Retries count once.
	settled, err := limiter.Commit(ctx, &headgatev1.CommitRequest{Reservation: reserved.GetReservation(), Cost: &took})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "took %d: %s\n", took, settled.GetSettlement().GetEnding())
	return nil
}

// callModel stands for the call and returns its cost in tokens.
func callModel() (int64, error) { return 312, nil }

package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/chaos/history"
)

// patience is how long a caller waits for an answer.
const patience = 1500 * time.Millisecond

// errNotSent means that a request has not left the caller.
var errNotSent = errors.New("not sent")

// question is a call to make.
type question struct {
	kind  history.Kind
	limit string // the attribute that rules match
	id    string
	cost  int64
	token string // the reservation or lease to settle
}

// reply is the answer of a door.
type reply struct {
	answer *history.Answer // nil if it is not the store's answer
	token  string          // a reservation or a lease
	reason string
}

// door is a way to call a node. Nothing is sent twice.
type door interface {
	ask(q *question) (reply, error)
	close()
}

// judged makes an answer from what all doors report.
func judged(a history.Answer, reason, token string) reply {
	switch reason {
	case "ok", "limited", "too_large":
		return reply{answer: &a, token: token, reason: reason}
	case "cached":
		a.Vague = true
		return reply{answer: &a, reason: reason}
	}
	return reply{reason: reason}
}

// settled is the answer to a settlement.
func settled(done bool, reason, token string) reply {
	return reply{answer: &history.Answer{Allowed: done}, reason: reason, token: token}
}

// httpDoor calls the HTTP API.
type httpDoor struct {
	base   string
	client *http.Client
}

func newHTTPDoor(address string) *httpDoor {
	return &httpDoor{"http://" + address + "/v1/", &http.Client{Timeout: patience, Transport: &http.Transport{}}}
}

func (d *httpDoor) close() { d.client.CloseIdleConnections() }

func (d *httpDoor) ask(q *question) (reply, error) {
	body := map[string]any{"domain": "chaos", "attributes": map[string]string{"limit": q.limit, "id": q.id}, "cost": q.cost}
	path := "check"
	switch q.kind {
	case history.Peek:
		body["peek"] = true
	case history.Reserve:
		path, body["ttl_ms"] = "reserve", 60_000
	case history.Commit:
		path, body = "commit", map[string]any{"reservation": q.token, "cost": q.cost}
	case history.Cancel:
		path, body = "cancel", map[string]any{"reservation": q.token}
	case history.Release, history.Renew:
		path, body = string(q.kind), map[string]any{"lease": q.token}
	default:
	}
	text, err := json.Marshal(body)
	if err != nil {
		return reply{}, err
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, d.base+path, bytes.NewReader(text))
	if err != nil {
		return reply{}, err
	}
	res, err := d.client.Do(req)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return reply{}, errNotSent
		}
		return reply{}, err
	}
	defer func() { _ = res.Body.Close() }()
	var a struct {
		Allowed                                 bool
		Rule, Reason, Lease, Reservation        string
		Limit, Remaining                        int64
		Retry                                   int64 `json:"retry_after_ms"`
		Reset                                   int64 `json:"reset_after_ms"`
		Delay                                   int64 `json:"delay_ms"`
		Committed, Cancelled, Released, Renewed bool
		Detail                                  string
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		return reply{}, err
	}
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusTooManyRequests {
		return reply{reason: fmt.Sprint(res.StatusCode, " ", a.Detail)}, nil
	}
	switch q.kind {
	case history.Commit, history.Cancel, history.Release, history.Renew:
		return settled(a.Committed || a.Cancelled || a.Released || a.Renewed, a.Reason, a.Lease), nil
	default:
	}
	return judged(history.Answer{
		Allowed: a.Allowed, Rule: a.Rule, Limit: a.Limit, Remaining: a.Remaining, Retry: a.Retry, Reset: a.Reset, Delay: a.Delay,
	}, a.Reason, a.Lease+a.Reservation), nil
}

// respDoor checks over the Redis protocol.
type respDoor struct {
	address string
	conn    net.Conn
	in      *bufio.Reader
}

func (d *respDoor) close() {
	if d.conn != nil {
		_ = d.conn.Close()
		d.conn = nil
	}
}

func (d *respDoor) ask(q *question) (reply, error) {
	name := "HG.CHECK"
	if q.kind == history.Peek {
		name = "HG.PEEK"
	}
	v, err := d.do([]string{name, "chaos", strconv.FormatInt(q.cost, 10), "limit", q.limit, "id", q.id})
	if err != nil {
		return reply{}, err
	}
	if e, ok := v.(error); ok {
		return reply{reason: e.Error()}, nil
	}
	list, _ := v.([]any)
	if len(list) < 9 {
		return reply{}, fmt.Errorf("answer %v", v)
	}
	number := func(i int) int64 { n, _ := list[i].(int64); return n }
	word := func(i int) string { s, _ := list[i].(string); return s }
	token := ""
	if len(list) > 9 {
		token = word(9)
	}
	return judged(history.Answer{
		Allowed: number(0) == 1, Rule: word(1), Limit: number(2), Remaining: number(3), Retry: number(4), Reset: number(5), Delay: number(7),
	}, word(6), token), nil
}

func (d *respDoor) do(args []string) (any, error) {
	if d.conn == nil {
		conn, err := net.DialTimeout("tcp", d.address, patience)
		if err != nil {
			return nil, errNotSent
		}
		d.conn, d.in = conn, bufio.NewReader(conn)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	err := d.conn.SetDeadline(time.Now().Add(patience))
	if err == nil {
		_, err = io.WriteString(d.conn, b.String())
	}
	var v any
	if err == nil {
		v, err = readRESP(d.in)
	}
	if err != nil {
		d.close()
	}
	return v, err
}

func readRESP(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil || len(line) < 3 {
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	rest := line[1 : len(line)-2]
	n, _ := strconv.ParseInt(rest, 10, 64)
	switch line[0] {
	case '-':
		return errors.New(rest), nil
	case ':':
		return n, nil
	case '+':
		return rest, nil
	case '$':
		if n < 0 {
			return nil, nil
		}
		b := make([]byte, n+2)
		_, err := io.ReadFull(r, b)
		return string(b[:n]), err
	case '*':
		list := make([]any, max(n, 0))
		for i := range list {
			if list[i], err = readRESP(r); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("unknown answer %q", line)
}

// grpcDoor calls over gRPC; reservations and leases use another door.
type grpcDoor struct {
	conn   *grpc.ClientConn
	client headgatev1.LimiterClient
}

func newGRPCDoor(address string) (*grpcDoor, error) {
	quick := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.2, MaxDelay: 200 * time.Millisecond}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, err
	}
	return &grpcDoor{conn, headgatev1.NewLimiterClient(conn)}, nil
}

func (d *grpcDoor) close() { _ = d.conn.Close() }

func (d *grpcDoor) ask(q *question) (reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := d.client.Check(ctx, &headgatev1.CheckRequest{
		Domain: "chaos", Attributes: map[string]string{"limit": q.limit, "id": q.id}, Cost: &q.cost, Peek: q.kind == history.Peek,
	})
	if err != nil {
		if strings.Contains(err.Error(), "connection refused") {
			return reply{}, errNotSent
		}
		return reply{}, err
	}
	v := res.GetVerdict()
	return judged(history.Answer{
		Allowed: v.GetAllowed(), Rule: v.GetRule(), Limit: v.GetLimit(), Remaining: v.GetRemaining(),
		Retry: v.GetRetryAfterMs(), Reset: v.GetResetAfterMs(), Delay: v.GetDelayMs(),
	}, strings.ToLower(strings.TrimPrefix(v.GetReason().String(), "REASON_")), res.GetLease()), nil
}

// Command overload shows what Headgate does when there is not enough for everybody:
//
//	go run ./examples/overload
//
// It starts a backend that can answer 200 requests a second, Headgate in front of it, and
// clients that send five times as many and wait for a second. A third of the way the backend
// loses half of its workers, and gets them back after another third.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"time"
)

const (
	workers = 8
	service = 40 * time.Millisecond // so the backend can answer 200 a second
	patient = time.Second           // how long a client waits
)

// class is a kind of requests: rules.yaml gives them their priorities by their paths.
type class struct {
	name, path string
	rate       float64 // a second

	asked, inTime, refused atomic.Int64
}

type options struct {
	headgate, mode, proxy, upstream, admin string
	length                                 time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.headgate, "headgate", "headgate", "the program to start")
	flag.StringVar(&o.mode, "adaptive", "on", "proxy.adaptive.mode: on, shadow or off")
	flag.StringVar(&o.proxy, "proxy", "127.0.0.1:8000", "address of the proxy")
	flag.StringVar(&o.upstream, "upstream", "127.0.0.1:9000", "address of the backend")
	flag.StringVar(&o.admin, "admin", "127.0.0.1:6070", "address of the dashboard")
	flag.DurationVar(&o.length, "length", time.Minute, "how long it takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	b := &backend{requests: make(chan chan struct{})}
	b.workers.Store(workers)
	for i := range workers {
		go b.work(ctx, i)
	}
	listener, err := net.Listen("tcp", o.upstream)
	if err != nil {
		return err
	}
	// Without limits there are more connections than it may have open.
	server := &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go server.Serve(listener) //nolint:errcheck // it ends with the program
	defer func() { _ = server.Close() }()

	headgate := exec.CommandContext(ctx, o.headgate, "serve", "--config", "examples/overload/headgate.yaml", "--log-level", "error", //nolint:gosec // what the caller names
		"--listen-proxy", o.proxy, "--upstream", "http://"+o.upstream, "--listen-admin", o.admin)
	headgate.Env = append(os.Environ(), "HEADGATE_PROXY_ADAPTIVE_MODE="+o.mode)
	headgate.Stderr = os.Stderr
	headgate.Cancel = func() error { return headgate.Process.Signal(os.Interrupt) }
	if err := headgate.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer stop()
		_ = headgate.Wait() // it has said why, or was told to end
	}()
	defer func() {
		stop()
		<-ended
	}()
	if err := ready(ctx, o.admin); err != nil {
		return err
	}
	fmt.Printf("Watch it at http://%s/\n\nanswered within a second, of those asked a second:\nsecond  backend  critical   default    sheddable\n", o.admin)
	return load(ctx, o, b)
}

// ready waits until Headgate answers.
func ready(ctx context.Context, admin string) error {
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		if answer, err := http.DefaultClient.Do(r); err == nil {
			_ = answer.Body.Close()
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("headgate does not answer")
}

// load sends requests, whether or not others are answered, and prints what came of them.
func load(ctx context.Context, o *options, b *backend) error {
	classes := []*class{
		{name: "critical", path: "/pay/1", rate: 20},
		{name: "default", path: "/", rate: 40},
		{name: "sheddable", path: "/reports/1", rate: 940},
	}
	client := &http.Client{Timeout: patient, Transport: &http.Transport{MaxIdleConnsPerHost: 2000}}
	for _, c := range classes {
		go func() {
			for next := time.Now(); ctx.Err() == nil; {
				next = next.Add(time.Duration(rand.ExpFloat64() / c.rate * float64(time.Second))) //nolint:gosec // no secret
				time.Sleep(time.Until(next))
				go c.ask(client, o.proxy)
			}
		}()
	}
	const rows = 15
	total := make([][2]int64, len(classes))
	for row := range rows {
		switch row {
		case rows / 3:
			b.workers.Store(workers / 2)
		case rows * 2 / 3:
			b.workers.Store(workers)
		}
		step := o.length / rows
		select {
		case <-time.After(step):
		case <-ctx.Done():
			return nil
		}
		fmt.Printf("%6.0f  %5.0f/s", (step * time.Duration(row+1)).Seconds(), float64(b.done.Swap(0))/step.Seconds())
		for i, c := range classes {
			asked, inTime := c.asked.Swap(0), c.inTime.Swap(0)
			total[i][0] += asked
			total[i][1] += inTime
			fmt.Printf("  %4.0f/%-4.0f", float64(inTime)/step.Seconds(), float64(asked)/step.Seconds())
		}
		fmt.Println()
	}
	fmt.Print("\nanswered in time: ")
	for i, c := range classes {
		fmt.Printf(" %s %.0f%% (%d refused at once)", c.name, 100*float64(total[i][1])/float64(max(total[i][0], 1)), c.refused.Load())
	}
	fmt.Println()
	return nil
}

// ask sends one request.
func (c *class) ask(client *http.Client, proxy string) {
	c.asked.Add(1)
	answer, err := client.Get("http://" + proxy + c.path)
	if err != nil {
		return // too late
	}
	defer func() { _ = answer.Body.Close() }()
	switch answer.StatusCode {
	case http.StatusOK:
		c.inTime.Add(1)
	case http.StatusServiceUnavailable:
		c.refused.Add(1)
	}
}

// backend answers requests in their order, one for each worker at once. Like many, it does
// not notice that a client has left.
type backend struct {
	requests chan chan struct{}
	workers  atomic.Int64
	done     atomic.Int64
}

func (b *backend) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	answered := make(chan struct{})
	b.requests <- answered
	<-answered
	fmt.Fprintln(w, "done")
}

// work is worker i, which rests while there are not so many.
func (b *backend) work(ctx context.Context, i int) {
	for ctx.Err() == nil {
		if int64(i) >= b.workers.Load() {
			time.Sleep(service)
			continue
		}
		answered := <-b.requests
		time.Sleep(service)
		b.done.Add(1)
		close(answered)
	}
}

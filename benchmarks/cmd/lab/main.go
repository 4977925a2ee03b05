// Command lab measures the accuracy of the algorithms: the same traffic goes through each of
// them, with a limit of 100 a minute, and is compared with the exact sliding log. It prints
// the tables of docs/internals/accuracy.md, as Markdown.
//
//	go run ./cmd/lab [--short] [--format FORMAT] [LOG...]
//
// With access logs it adds a table for their traffic.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/headgate/headgate/benchmarks/process"
	"github.com/headgate/headgate/internal/replay/offline"
	"github.com/headgate/headgate/store/memory"
)

func main() {
	short := flag.Bool("short", false, "less traffic: takes seconds instead of minutes")
	logs := offline.AccessLogs{Stdin: os.Stdin}
	flag.StringVar(&logs.Format, "format", "", "log format (default: detected)")
	flag.StringVar(&logs.Timezone, "timezone", "UTC", "time zone of timestamps without one")
	flag.DurationVar(&logs.Reorder, "reorder", 10*time.Second, "how far out of order lines may be")
	list := func(to *[]string) func(string) error {
		return func(text string) error {
			*to = append(*to, strings.Split(text, ",")...)
			return nil
		}
	}
	flag.Func("map", "field names of JSON lines, such as client_ip=ip,path=url,time=when", list(&logs.Map))
	flag.Func("trusted-proxies", "addresses and networks whose logged X-Forwarded-For is trusted", list(&logs.TrustedProxies))
	flag.Parse()
	logs.Paths = flag.Args()
	process.Main(func(ctx context.Context) error {
		profiles := Profiles(60, 8, 20_000)
		if *short {
			profiles = Profiles(8, 2, 100)
		}
		if len(logs.Paths) > 0 {
			p, err := logged(ctx, &logs)
			if err != nil {
				return err
			}
			profiles = append(profiles, p)
		}
		return measure(ctx, os.Stdout, profiles)
	})
}

// logged returns the traffic of logs.
func logged(ctx context.Context, logs *offline.AccessLogs) (Profile, error) {
	p := Profile{Name: "A real log, by client address"}
	keys := map[string]int{}
	err := logs.Visit(ctx, func(at int64, client string) {
		key, ok := keys[client]
		if !ok {
			key = len(keys)
			keys[client] = key
		}
		p.Requests = append(p.Requests, Request{At: at, Key: key})
	})
	p.Keys = len(keys)
	return p, err
}

// measure runs all profiles and writes a table for each.
func measure(ctx context.Context, w io.Writer, profiles []Profile) error {
	for _, p := range profiles {
		fmt.Fprintln(os.Stderr, p.Name)
		var results []Result
		for _, s := range Subjects(100, time.Minute) {
			r, err := Run(ctx, s, p, func() *memory.Store {
				return memory.New(memory.WithMaxKeys(max(p.Keys, 1)), memory.WithMaxBytes(1<<30))
			})
			if err != nil {
				return fmt.Errorf("%s, %s: %w", p.Name, s.Name, err)
			}
			results = append(results, r)
		}
		if err := WriteTable(w, p, results); err != nil {
			return err
		}
	}
	return nil
}

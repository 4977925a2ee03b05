package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/internal/testkit/certtest"
	"github.com/headgate/headgate/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	if err := os.Setenv("GORACE", endSoon); err != nil {
		panic(err)
	}
	testscript.Main(m, map[string]func(){"headgate": main})
}

// endSoon are options of the race detector: a program with it waits a second before it
// ends, unless they say otherwise.
const endSoon = "atexit_sleep_ms=50"

// TestScripts runs the commands as a user would; see testdata.
func TestScripts(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	authority.Issue("server", 2, "localhost")
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", endSoon)
			e.Setenv("CERTS", filepath.Dir(authority.CA()))
			examples, err := filepath.Abs("../../examples")
			e.Setenv("EXAMPLES", examples)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"freeport": freePort(t),
			"ready":    ready,
			"curl":     curl,

			"eventually": eventually,

			"oddupstream":  oddUpstream,
			"grpcnonsense": grpcNonsense,
			"logged":       logged,
		},
	})
}

// freePort sets each named variable to a free address.
func freePort(t *testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		for _, name := range args {
			ts.Setenv(name, redistest.FreeAddress(t))
		}
	}
}

// ready waits until every address accepts connections.
func ready(ts *testscript.TestScript, _ bool, args []string) {
	deadline := time.Now().Add(20 * time.Second)
	for _, address := range args {
		for {
			conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", address)
			if err == nil {
				_ = conn.Close()
				break
			}
			if time.Now().After(deadline) {
				ts.Fatalf("nothing answers at %s: %v", address, err)
			}
			// Other processes have no channel to wait for.
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// curl prints the status, the header and the body of a response: curl URL
// [BODY].
func curl(ts *testscript.TestScript, neg bool, args []string) {
	method, body := http.MethodGet, ""
	if len(args) > 1 {
		method, body = http.MethodPost, args[1]
	}
	r, err := http.NewRequestWithContext(context.Background(), method, args[0], strings.NewReader(body))
	ts.Check(err)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if neg {
		if err == nil {
			ts.Fatalf("%s answers", args[0])
		}
		return
	}
	ts.Check(err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	ts.Check(err)
	var header strings.Builder
	ts.Check(res.Header.Write(&header))
	_, err = fmt.Fprintf(ts.Stdout(), "%s\n%s\n%s\n", res.Status, strings.ReplaceAll(header.String(), "\r\n", "\n"), text)
	ts.Check(err)
}

// eventually requests a URL until the response has a text: eventually URL TEXT.
func eventually(ts *testscript.TestScript, _ bool, args []string) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	deadline := time.Now().Add(20 * time.Second)
	for {
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, args[0], http.NoBody)
		ts.Check(err)
		res, err := client.Do(r)
		ts.Check(err)
		text, err := io.ReadAll(res.Body)
		ts.Check(errors.Join(err, res.Body.Close()))
		if strings.Contains(string(text), args[1]) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s answers %s", args[0], text)
		}
		// Other processes have no channel to wait for.
		time.Sleep(10 * time.Millisecond)
	}
}

// Colour is only for terminals.
func TestNoColourInFiles(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if code := run(t.Context(), []string{"chek"}, streams{in: strings.NewReader(""), out: file, err: file}); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	text, err := os.ReadFile(file.Name())
	if err != nil || strings.Contains(string(text), "\x1b") || !strings.HasPrefix(string(text), "error: ") {
		t.Errorf("%q, %v", text, err)
	}
}

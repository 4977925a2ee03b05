package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/door/admin"
)

// An import checks everything before the first change, and says what was done if the
// server stops in between.
func TestImportThatIsInterrupted(t *testing.T) {
	var mu sync.Mutex // of the next two: the client does not wait for a server that dies
	var calls []string
	var refuse int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request admin.ImportRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, fmt.Sprint(request.DryRun, " ", len(request.Rows)))
		switch {
		case request.DryRun || len(calls) == 4:
			_ = json.NewEncoder(w).Encode(admin.ImportAnswer{Rows: len(request.Rows), Changed: len(request.Rows), New: len(request.Rows), Room: 20_000})
		case refuse > 0:
			w.WriteHeader(refuse)
			_, _ = fmt.Fprint(w, `{"detail":"refused"}`)
		default:
			panic(http.ErrAbortHandler) // the server dies
		}
	}))
	defer server.Close()
	var text strings.Builder
	for i := range 12_000 {
		_, _ = fmt.Fprintf(&text, "{\"kind\":\"ban\",\"key\":\"k-%d\"}\n", i)
	}
	file := filepath.Join(t.TempDir(), "keys.jsonl")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for status, want := range map[int]string{
		0:   "EOF; the lines up to 5000 are done, lines 5001 to 10000 may be done in part",
		400: "refused; the lines up to 5000 are done, line 5001 and those after it are not",
		503: "refused; the lines up to 5000 are done, lines 5001 to 10000 may be done in part",
	} {
		mu.Lock()
		calls, refuse = nil, status
		mu.Unlock()
		var out bytes.Buffer
		cmd := newKeysImport(streams{in: strings.NewReader(""), out: &out, err: &out}, &connection{address: server.URL})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs([]string{file})
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.HasSuffix(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%v, want %s; printed %s", err, want, out.String())
		}
		mu.Lock()
		got := strings.Join(calls, ", ")
		mu.Unlock()
		if got != "true 5000, true 5000, true 2000, false 5000, false 5000" {
			t.Errorf("called %s", got)
		}
	}
	// More than there is space for.
	var full strings.Builder
	for i := range 20_001 {
		_, _ = fmt.Fprintf(&full, "{\"kind\":\"ban\",\"key\":\"%d\"}\n", i)
	}
	mu.Lock()
	calls = nil
	mu.Unlock()
	cmd := newKeysImport(streams{in: strings.NewReader(full.String()), out: &bytes.Buffer{}, err: &bytes.Buffer{}}, &connection{address: server.URL})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"-"})
	err := cmd.ExecuteContext(t.Context())
	mu.Lock()
	defer mu.Unlock()
	if err == nil || err.Error() != "the file adds 20001 bans, overrides and grants, and there is space for 20000" || len(calls) != 5 {
		t.Errorf("%v after %d calls", err, len(calls))
	}
}

// Ctrl-C during an import says what was done, too.
func TestImportThatIsStopped(t *testing.T) {
	var text strings.Builder
	for i := range 12_000 {
		_, _ = fmt.Fprintf(&text, "{\"kind\":\"ban\",\"key\":\"k-%d\"}\n", i)
	}
	file := filepath.Join(t.TempDir(), "keys.jsonl")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for after, want := range map[int64]string{
		2: "interrupted",
		5: "interrupted; the lines up to 5000 are done, lines 5001 to 10000 may be done in part",
	} {
		ctx, stop := context.WithCancel(t.Context())
		var calls atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var request admin.ImportRequest
			if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
				t.Error(err)
			}
			if calls.Add(1) == after {
				stop()
				<-r.Context().Done()
				return
			}
			_ = json.NewEncoder(w).Encode(admin.ImportAnswer{Rows: len(request.Rows), New: len(request.Rows), Room: 20_000})
		}))
		cmd := newKeysImport(streams{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &bytes.Buffer{}}, &connection{address: server.URL})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs([]string{file})
		err := cmd.ExecuteContext(ctx)
		if err == nil || err.Error() != want {
			t.Errorf("stopped in call %d: %v, want %s", after, err, want)
		}
		server.Close()
		stop()
	}
}

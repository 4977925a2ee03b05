package rulefiles_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/rulefiles"
	"github.com/headgate/headgate/store/memory"
)

// A service with the rules of a file, which it follows while it runs.
func Example() {
	folder, err := os.MkdirTemp("", "rules")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	file := filepath.Join(folder, "rules.yaml")
	err = os.WriteFile(file, []byte(`
domain: shop
limits:
  - name: login
    match: {method: POST, path: /login}
    key: [client_ip]
    rate: 2/minute
    algorithm: sliding_log
  - name: mails
    match: {attributes: {action: mail}}
    key: [customer]
    rate: 100/day
`), 0o600)
	if err != nil {
		panic(err)
	}

	rules, err := rulefiles.Open(memory.New(), []string{file})
	if err != nil {
		panic(err) // every mistake, with file:line:column
	}
	defer func() { _ = rules.Close() }()

	service := httptest.NewServer(rules.Middleware(http.NotFoundHandler()))
	defer service.Close()
	for range 3 {
		answer, err := http.Post(service.URL+"/login", "text/plain", nil)
		if err != nil {
			panic(err)
		}
		_ = answer.Body.Close()
		fmt.Printf("%s, retry after %q\n", answer.Status, answer.Header.Get("Retry-After"))
	}

	// Anything that is not an HTTP request is described by attributes.
	verdict, err := rules.DecideAttributes(context.Background(), map[string]string{"action": "mail", "customer": "c-42"}, 1)
	fmt.Println(verdict.Decision.Allowed, verdict.Rule, verdict.Decision.Remaining, err)

	// Output:
	// 404 Not Found, retry after ""
	// 404 Not Found, retry after ""
	// 429 Too Many Requests, retry after "60"
	// true mails 99 <nil>
}

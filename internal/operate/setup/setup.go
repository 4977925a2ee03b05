// Package setup writes the first files of an installation: a configuration, rules, a
// rule test, and what the proxy in front needs. headgate init asks for the answers.
package setup

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed front
var front embed.FS

// Answers are what to set up.
type Answers struct {
	Front    string   // one of Fronts
	Store    string   // memory, or the URL of a Redis
	Limits   []string // some of Limits
	Upstream string   // URL of the service behind Headgate's own proxy
}

// Choice is a possible answer.
type Choice struct{ Name, What string }

// Fronts are the choices of what is in front.
func Fronts() []Choice {
	return []Choice{
		{"nginx", "nginx asks Headgate before it forwards a request"},
		{"traefik", "Traefik asks Headgate before it forwards a request"},
		{"caddy", "Caddy asks Headgate before it forwards a request"},
		{"envoy", "Envoy asks Headgate by its rate limit service"},
		{"go", "nothing: a Go program limits its own requests"},
		{"none", "nothing: Headgate is the proxy in front of a service"},
	}
}

// Limits are the choices of what to limit.
func Limits() []Choice {
	return []Choice{
		{"logins", "5 logins a minute from an address"},
		{"addresses", "50 requests a second from an address"},
		{"api-keys", "30 requests a minute with an API key"},
	}
}

// names returns the names of choices.
func names(list []Choice) (all []string) {
	for _, c := range list {
		all = append(all, c.Name)
	}
	return all
}

// WrongAnswerError is an answer that is none of the choices, or invalid.
type WrongAnswerError struct{ Flag, Message, Hint string }

// Error names the flag and says what is wrong.
func (e *WrongAnswerError) Error() string { return e.Flag + ": " + e.Message }

// Check returns a *WrongAnswerError, or nil.
func (a *Answers) Check() error {
	if !slices.Contains(names(Fronts()), a.Front) {
		return &WrongAnswerError{"--front", fmt.Sprintf("%q is not one of %s", a.Front, strings.Join(names(Fronts()), ", ")), ""}
	}
	for i, limit := range a.Limits {
		if !slices.Contains(names(Limits()), limit) || slices.Contains(a.Limits[:i], limit) {
			return &WrongAnswerError{"--limit", fmt.Sprintf("%q is unknown or a duplicate", limit), "write some of " + strings.Join(names(Limits()), ", ") + ", separated by commas"}
		}
	}
	if len(a.Limits) == 0 {
		return &WrongAnswerError{"--limit", "there is nothing to limit", "write some of " + strings.Join(names(Limits()), ", ") + ", separated by commas"}
	}
	if err := a.checkStore(); err != nil {
		return err
	}
	u, err := url.Parse(a.Upstream)
	if a.Front == "none" && (err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https") {
		return &WrongAnswerError{"--upstream", "it is not the URL of a service", "write it as http://127.0.0.1:9000"}
	}
	return nil
}

func (a *Answers) checkStore() error {
	if a.Store == "memory" {
		return nil
	}
	u, err := url.Parse(a.Store)
	schemes := []string{"redis", "rediss", "valkey", "valkeys"}
	switch {
	case strings.Contains(a.Store, "@"):
		return &WrongAnswerError{"--store", "the URL has a user or a password", "leave them out, and set store.redis.username and store.redis.password_file"}
	case err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme) || strings.ContainsAny(a.Store, "\"\\\n "):
		return &WrongAnswerError{"--store", "it is neither memory nor the URL of a Redis", "write memory, or a URL such as redis://127.0.0.1:6379"}
	}
	return nil
}

// File is a file to write.
// Its name is relative to the folder, with slashes.
type File struct{ Name, Text string }

// Files returns the files for the answers, which must be valid.
func (a *Answers) Files() []File {
	files := []File{{"headgate.yaml", a.configuration()}, {"rules/rules.yaml", a.rules()}, {"rules/rules_test.yaml", a.test()}}
	switch a.Front {
	case "nginx":
		files = append(files, a.snippet("nginx.conf"))
	case "traefik":
		files = append(files, a.snippet("traefik.yml"), a.snippet("dynamic.yml"))
	case "caddy":
		files = append(files, a.snippet("Caddyfile"))
	case "envoy":
		files = append(files, File{"envoy.yaml", embedded("envoy.yaml")})
	case "go":
		files = append(files, File{"main.go", a.program()})
	}
	return files
}

// failsClosed is the first line of the configuration of a proxy.
const failsClosed = `# Fails closed: while Headgate does not answer, the proxy refuses requests. See
# docs/forward-auth.md for how nginx fails open. The service is at 127.0.0.1:9000.
`

func (a *Answers) snippet(name string) File { return File{name, failsClosed + embedded(name)} }

// embedded returns a file of the folder front.
func embedded(name string) string {
	text, _ := front.ReadFile("front/" + name) // the files are in the program
	return string(text)
}

// Next returns the command to run next, and what to do with the other files.
func (a *Answers) Next(folder string) (command, then string) {
	config := filepath.Join(folder, "headgate.yaml")
	serve := "headgate serve --config " + config
	switch a.Front {
	case "nginx":
		return serve, "nginx -c " + filepath.Join(folder, "nginx.conf") + " shows how nginx asks Headgate; copy its locations into your configuration"
	case "traefik":
		return serve, "dynamic.yml has the middleware for Traefik; copy it into your configuration"
	case "caddy":
		return serve, "the Caddyfile has the route for Caddy; copy it into yours"
	case "envoy":
		return serve, "envoy.yaml has the filter, the descriptors and the cluster for Envoy; copy them into your configuration"
	case "go":
		return "headgate test " + folder, "main.go uses the rules without a server; copy what it does into your program"
	}
	return serve, "requests to http://127.0.0.1:8000 are limited, then sent to " + a.Upstream
}

// ErrExists is wrapped by the error of [Write] if files exist.
var ErrExists = errors.New("it exists already")

// Existing says what to do with files that exist.
type Existing uint8

const (
	// Keep makes Write fail, before it writes anything.
	Keep Existing = iota
	// Replace overwrites them.
	Replace
)

// Write writes files to a folder, which it makes if needed.
func Write(folder string, files []File, existing Existing) error {
	for _, f := range files {
		name := filepath.Join(folder, filepath.FromSlash(f.Name))
		if _, err := os.Lstat(name); err == nil && existing == Keep {
			return fmt.Errorf("%s: %w", name, ErrExists)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, f := range files {
		name := filepath.Join(folder, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // another user may run the server
			return err
		}
		if err := os.WriteFile(name, []byte(f.Text), 0o644); err != nil { //nolint:gosec // likewise; there are no secrets in them
			return err
		}
	}
	return nil
}

// Package setup writes the first files of an installation: a configuration, rules, a
// rule test, and what the proxy in front needs. headgate init asks for the answers.
package setup

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/counts/storing"
	"github.com/headgate/headgate/internal/door/proxy"
)

// proxyAddress is where Headgate's own proxy listens.
const proxyAddress = "127.0.0.1:8000"

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

// Check returns the first *WrongAnswerError of all answers, or nil.
func (a *Answers) Check() error {
	return cmp.Or(a.CheckFront(), a.CheckLimits(), a.CheckStore(), a.CheckUpstream())
}

// CheckFront returns what is wrong with Front, or nil.
func (a *Answers) CheckFront() error {
	if slices.Contains(names(Fronts()), a.Front) {
		return nil
	}
	return &WrongAnswerError{"--front", fmt.Sprintf("%q is not one of %s", a.Front, strings.Join(names(Fronts()), ", ")), ""}
}

// CheckLimits returns what is wrong with Limits, or nil.
func (a *Answers) CheckLimits() error {
	hint := "write some of " + strings.Join(names(Limits()), ", ") + ", separated by commas"
	for i, limit := range a.Limits {
		if !slices.Contains(names(Limits()), limit) || slices.Contains(a.Limits[:i], limit) {
			return &WrongAnswerError{"--limit", fmt.Sprintf("%q is unknown or a duplicate", limit), hint}
		}
	}
	if len(a.Limits) == 0 {
		return &WrongAnswerError{"--limit", "there is nothing to limit", hint}
	}
	return nil
}

// CheckStore returns what is wrong with Store, or nil. It accepts what the server does,
// except for passwords: they do not belong into a file that everyone can read.
func (a *Answers) CheckStore() error {
	if a.Store == "memory" {
		return nil
	}
	const flag, hint = "--store", "write memory, or a URL such as redis://127.0.0.1:6379"
	secret := &WrongAnswerError{flag, "the URL has a user or a password", "leave them out, and set store.redis.username and store.redis.password_file"}
	_, after, isURL := strings.Cut(a.Store, "://")
	switch {
	case strings.Contains(a.Store, "@"):
		return secret
	case !isURL || after == "" || strings.ContainsFunc(a.Store, func(r rune) bool { return r <= ' ' || r == '"' || r == '\\' }):
		return &WrongAnswerError{flag, "it is neither memory nor the URL of a Redis", hint}
	}
	options, err := storing.RedisOptions(&config.Redis{URL: config.Secret(a.Store)})
	if wrong, ok := errors.AsType[*config.SourceError](err); ok {
		return &WrongAnswerError{flag, wrong.Message, hint}
	}
	if options.SentinelUsername != "" || options.SentinelPassword != "" {
		return secret
	}
	return err
}

// CheckUpstream returns what is wrong with Upstream, or nil.
func (a *Answers) CheckUpstream() error {
	if a.Front != "none" {
		return nil
	}
	_, err := config.Load(config.Sources{
		NoFile: true, Doors: []config.Section{proxy.Door(nil).Section},
		Flags:       map[string]string{"proxy.upstream": a.Upstream, "proxy.listen": proxyAddress},
		Environment: func(string) (string, bool) { return "", false },
	})
	if wrong, ok := errors.AsType[*config.SourceError](err); ok {
		return &WrongAnswerError{"--upstream", wrong.Message, cmp.Or(wrong.Hint, "write a URL such as http://127.0.0.1:9000")}
	}
	return err
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
# docs/connect/forward-auth.md for how nginx fails open. The service is at 127.0.0.1:9000.
`

func (a *Answers) snippet(name string) File { return File{name, failsClosed + embedded(name)} }

// embedded returns a file of the folder front.
func embedded(name string) string {
	text, _ := front.ReadFile("front/" + name) // the files are in the program
	return string(text)
}

// Next returns the command to run next, and what to do with the other files.
func (a *Answers) Next(folder string) (command, then string) {
	serve := "headgate serve --config " + inShell(filepath.Join(folder, "headgate.yaml"))
	switch a.Front {
	case "nginx":
		return serve, "nginx.conf shows how nginx asks Headgate; copy its locations into your configuration"
	case "traefik":
		return serve, "dynamic.yml has the middleware for Traefik; copy it into your configuration"
	case "caddy":
		return serve, "the Caddyfile has the route for Caddy; copy it into yours"
	case "envoy":
		return serve, "envoy.yaml has the filter, the descriptors and the cluster for Envoy; copy them into your configuration"
	case "go":
		return "headgate test " + inShell(folder), "main.go uses the rules without a server; copy what it does into your program"
	}
	return serve, "requests to http://" + proxyAddress + " are limited, then sent to " + a.Upstream
}

// inShell returns a path as a shell reads it.
func inShell(path string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/\\:._-+=@%,~", r)
	}
	if path != "" && !strings.ContainsFunc(path, func(r rune) bool { return !plain(r) }) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
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
		if info, err := os.Lstat(name); err == nil && existing == Keep {
			return fmt.Errorf("%s: %w", name, ErrExists)
		} else if err == nil && info.IsDir() {
			return fmt.Errorf("%s is a folder: choose another one, or move it away", name)
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

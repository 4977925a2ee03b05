package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/replay/accesslog"
	"github.com/headgate/headgate/internal/replay/simulate"
	"github.com/headgate/headgate/internal/request/client"
)

// AccessLogs says which logs to read, and how.
type AccessLogs struct {
	// Paths are files; - is standard input.
	Paths []string
	Stdin io.Reader
	// Format is as of accesslog.New; empty finds it out.
	Format string
	// Map says which keys of JSON are which attributes.
	Map []string
	// Timezone is that of times that do not say theirs.
	Timezone string
	// TrustedProxies are addresses and networks.
	TrustedProxies []string
	// Reorder is how much earlier than a line before it a line may be.
	Reorder time.Duration
	// Told, if not nil, is told of each log when its format is known.
	Told func(simulate.LogReport)
	// Progress, if not nil, is called now and then.
	Progress func(simulate.Progress)
}

// flagError is a flag whose value is wrong.
func flagError(flag, message, hint string) error {
	return &config.SourceError{Source: "--" + flag, Message: message, Hint: hint}
}

// reading translates l.
func (l *AccessLogs) reading() (simulate.Reading, error) {
	r := simulate.Reading{Reorder: l.Reorder, Told: l.Told, Progress: l.Progress}
	if l.Reorder < 0 {
		return r, flagError("reorder", "a time cannot be negative", "")
	}
	var err error
	if r.Zone, err = time.LoadLocation(l.Timezone); err != nil {
		return r, flagError("timezone", fmt.Sprintf("there is no time zone %q", l.Timezone), "write it as Europe/Berlin, or UTC")
	}
	var mapping map[string]string
	for _, pair := range l.Map {
		attribute, path, ok := strings.Cut(pair, "=")
		if !ok || path == "" {
			return r, flagError("map", fmt.Sprintf("%q is not ATTRIBUTE=KEY", pair), "such as client_ip=ip,path=url,time=when")
		}
		if mapping == nil {
			mapping = map[string]string{}
		}
		mapping[attribute] = path
	}
	if l.Format != "" || mapping != nil {
		if r.Format, err = accesslog.New(l.Format, mapping); err != nil {
			flag := "format"
			if l.Format == "" {
				flag = "map"
			}
			return r, flagError(flag, err.Error(), "")
		}
	}
	var trusted []netip.Prefix
	for _, text := range l.TrustedProxies {
		prefix, err := netip.ParsePrefix(text)
		if address, single := netip.ParseAddr(text); single == nil {
			prefix, err = address.Prefix(address.BitLen())
		}
		if err != nil {
			return r, flagError("trusted-proxies", fmt.Sprintf("%q is neither an address nor a network", text), "such as 10.0.0.0/8")
		}
		trusted = append(trusted, prefix.Masked())
	}
	if r.Clients, err = client.New(client.Config{TrustedProxies: trusted, Source: client.XForwardedFor}); err != nil {
		return r, flagError("trusted-proxies", err.Error(), "")
	}
	r.Logs, err = l.logs()
	return r, err
}

// logs translates l.Paths.
func (l *AccessLogs) logs() ([]simulate.Log, error) {
	var out []simulate.Log
	stdin := false
	for _, path := range l.Paths {
		if path == "-" {
			if stdin {
				return nil, &config.SourceError{Source: "-", Message: "standard input can be read only once"}
			}
			stdin = true
			out = append(out, simulate.Log{
				Name: "standard input", Once: true,
				Open: func() (io.ReadCloser, error) { return io.NopCloser(l.Stdin), nil },
			})
			continue
		}
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, &config.SourceError{Source: path, Message: "there is no such file", Hint: "check the name; it is relative to the current folder"}
		case err != nil:
			return nil, err
		case info.IsDir():
			return nil, &config.SourceError{Source: path, Message: "this is a folder", Hint: "name its files, such as " + path + "/access.log*"}
		}
		out = append(out, simulate.Log{
			Name: path, Size: info.Size(), Once: !info.Mode().IsRegular(),
			Open: func() (io.ReadCloser, error) { return os.Open(path) },
		})
	}
	return out, nil
}

// logErrors turns the errors of reading into those that can be shown.
func logErrors(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out config.Errors
		for _, e := range joined.Unwrap() {
			out = append(out, logErrors(e))
		}
		return out
	}
	if e, ok := errors.AsType[*simulate.LogError](err); ok {
		return &config.SourceError{Source: e.Name, Message: e.Err.Error(), Hint: e.Hint}
	}
	return err
}

// Visit calls visit for every request that has a client, in the order of their
// times.
func (l *AccessLogs) Visit(ctx context.Context, visit func(at int64, client string)) error {
	r, err := l.reading()
	if err != nil {
		return err
	}
	return logErrors(simulate.Visit(ctx, r, visit))
}

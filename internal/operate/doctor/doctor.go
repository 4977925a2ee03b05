// Package doctor finds what is wrong with an installation, before the server starts or
// while it runs. It changes nothing.
package doctor

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/base/plain"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/replay/offline"
	"github.com/headgate/headgate/internal/transport/overload"
)

// Level is how bad a finding is.
type Level string

// The levels. Only Fail makes the examination fail.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Finding is one thing that was examined.
type Finding struct {
	Check string `json:"check"` // what was examined, such as store
	Level Level  `json:"level"`
	What  string `json:"what"`          // what was found
	Why   string `json:"why,omitempty"` // why it matters
	Do    string `json:"do,omitempty"`  // what to do about it
}

// leastFiles is the number of file descriptors below which an examination warns: each
// client takes one, and behind the proxy two.
const leastFiles = 4096

// Installation is what to examine.
type Installation struct {
	Sources config.Sources
	Now     func() time.Time // measures how long the store takes
}

// Examine returns the findings about the configuration, the rules, the doors, the
// machine and the store, in this order.
func (i *Installation) Examine(ctx context.Context) []Finding {
	c, err := config.Load(i.Sources)
	if err != nil {
		var all []Finding
		for _, d := range offline.Diagnose(err) {
			all = append(all, Finding{"configuration", Fail, placed(d), "the server does not start", d.Hint})
		}
		return all
	}
	all := configured(c)
	all = append(all, written(c)...)
	all = append(all, i.doors(ctx, c)...)
	all = append(all, i.certificates(c)...)
	all = append(all, secretFiles(c, i.Sources.Doors)...)
	all = append(all, writable(c)...)
	all = append(all, descriptors())
	all = append(all, i.store(ctx, c)...)
	return append(all, i.regions(ctx, c)...)
}

// placed returns a message with its position.
func placed(d offline.Diagnosis) string {
	if d.Position == "" {
		return d.Message
	}
	return d.Position + ": " + d.Message
}

// configured returns the warnings about the configuration.
func configured(c *config.Config) (all []Finding) {
	for _, w := range c.Warnings {
		all = append(all, Finding{"configuration", Warn, w.Error(), "", w.Hint})
	}
	if len(all) == 0 {
		name := c.File
		if name == "" {
			name = "no file: the defaults, flags and variables"
		}
		all = append(all, Finding{Check: "configuration", Level: OK, What: name})
	}
	return all
}

// written returns what check says about the rules.
func written(c *config.Config) (all []Finding) {
	if c.RulesFrom == config.FromXDS {
		return []Finding{{Check: "rules", Level: OK, What: "rules come from a control plane: see a running server, with --address"}}
	}
	if len(c.Rules) == 0 {
		return []Finding{{"rules", Warn, "there are no rules", "nothing is limited", "write rules, or run headgate init"}}
	}
	report := offline.Check(c.RuleOptions, c.Rules...)
	for _, d := range report.Diagnoses {
		level, why := Warn, "it works, but probably not as intended"
		if d.Severity == "error" {
			level, why = Fail, "the server does not start with it"
		}
		all = append(all, Finding{"rules", level, placed(d), why, d.Hint})
	}
	if len(all) == 0 {
		all = append(all, Finding{Check: "rules", Level: OK, What: plain.Count(report.Rules, "rule") + " in " + plain.Count(report.Files, "file")})
	}
	return all
}

// doors examines the addresses that the server would open.
func (i *Installation) doors(ctx context.Context, c *config.Config) (all []Finding) {
	exposed := map[string]bool{}
	var opened []net.Listener // until the end: two doors cannot share an address
	defer func() {
		for _, l := range opened {
			_ = l.Close()
		}
	}()
	for _, e := range c.Exposed() {
		exposed[e.Door] = true
		all = append(all, Finding{"doors", Warn, e.Door + ": " + e.Why, "other machines reach this address", e.Hint})
	}
	for _, s := range i.Sources.Doors {
		d := c.Door(s.Name)
		if !d.Open() {
			continue
		}
		network, address := config.SplitAddress(d.Address)
		if network != "tcp" { // opening a socket would replace it
			all = append(all, folderOf("doors", s.Name, address, "the server does not start", "name a socket in an existing, writable folder: "+d.Key)...)
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, network, address)
		if err != nil {
			all = append(all, Finding{"doors", Fail, fmt.Sprintf("%s: cannot listen on %s: %s", s.Name, address, cause(err)), "the server does not start; if it is headgate that runs there, ask it with --address", "stop the other program, or set " + d.Key})
			continue
		}
		opened = append(opened, l)
		if !exposed[s.Name] {
			all = append(all, Finding{Check: "doors", Level: OK, What: s.Name + " can listen on " + address})
		}
	}
	if p := c.Door("proxy"); p.Open() && len(c.TrustedProxies) == 0 && !config.IsLoopback(p.Address) {
		all = append(all, Finding{
			"trusted proxies", Warn, "none, and other machines reach the proxy at " + p.Address,
			"behind a load balancer, all clients have its address and share one count", "list the load balancer in trusted_proxies; ignore this if clients connect directly",
		})
	}
	return all
}

// cause returns the last part of an error of package net: what the system says.
func cause(err error) string {
	text := err.Error()
	return text[strings.LastIndex(text, ": ")+len(": "):]
}

// descriptors examines the limit on open files, which the server raises as it starts.
func descriptors() Finding {
	limit, known := overload.RaiseLimit()
	f := Finding{Check: "descriptors", Level: OK, What: fmt.Sprintf("%d files may be open", limit)}
	if known && limit < leastFiles {
		f.Level, f.Why, f.Do = Warn, "each client takes one descriptor, two behind the proxy", "raise ulimit -n, or LimitNOFILE= of the systemd unit"
	}
	if !known {
		f.What = "this system does not tell how many files may be open"
	}
	return f
}

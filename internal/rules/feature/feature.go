// Package feature is what the rest of Headgate knows of a feature of rules that has a folder
// of its own, below features. A feature is a key of Headgate's own form with all that it
// does: its rows, its step in a process, its metrics, and what it says to people.
package feature

import (
	"context"
	"log/slog"
	"time"

	"github.com/headgate/headgate/internal/rules"
	"github.com/headgate/headgate/internal/rules/form"
	"github.com/headgate/headgate/internal/rules/yamltext"
	"github.com/headgate/headgate/store"
)

// Feature is one of them. All but Row and Read are nil if there is nothing to do.
type Feature struct {
	Row  func() form.Row     // its key in a rule
	Keys func() form.Mapping // the keys of its value
	// Read reads the key, if the rule has it, and adds a trait to the rule. The limit, the
	// key and on_limit of the rule are known. With a trait that is a [rules.When], the rule
	// applies only at times.
	Read func(*Reading)
	// Open returns what the feature does in a process, besides decisions.
	Open func(Process) Worker
	// Resets returns the operations with which all is forgotten that the feature has counted
	// about a key of a rule.
	Resets func(rule *rules.Rule, key string, now time.Time) []store.Op
}

// Reading is a rule that is being read.
type Reading struct {
	*yamltext.Report

	Rule   *rules.Rule
	Fields yamltext.Fields
	Tiered bool // other tiers may have a limit if this one has none

	NoProxy     bool   // the process has none
	ProxyDomain string // whose rules the proxy applies; empty if that is not set
}

// Process is what a process offers its features.
type Process struct {
	Store store.Store // the engine's
	Clock func() time.Time
	Log   *slog.Logger // receives failures; nil for none
	// Ban bans keys, and returns the bans that have started: all of them, unless there is an
	// error. unsaved is how many of them a restart would end. Bans in shadow mode are not
	// passed on.
	Ban func(ctx context.Context, list []Ban) (started []Ban, unsaved int, err error)
	// Follow says that bans by other processes which share the store are not known here. A
	// feature then passes them to Ban once it learns of them. They do not count as bans by this
	// process.
	Follow  bool
	Started func(Ban) // is called for each ban, in shadow mode too, if it is not nil
	MaxKeys int       // how many keys a feature notes at the same time; 0 is its default
}

// Ban is the ban of a key of a rule, or in shadow mode what would be one.
type Ban struct {
	Rule        *rules.Rule
	Key         string
	Mode        rules.Mode
	Number      int64 // of the key's bans, from 1 on
	From, Until time.Time
	By, Reason  string // for operators: the feature, and what led to the ban
}

// Interval is how often to call [Worker.Tick] in a server.
const Interval = 100 * time.Millisecond

// Worker is what a feature does in a process.
type Worker interface {
	// Wanted reports whether any rule has the feature. Without one there is nothing to do.
	Wanted(rs *rules.Ruleset) bool
	// Refused is called on the path of each request that a rule with traits has refused, as
	// engine.Refusals says.
	Refused(rule *rules.Rule, key string, lane uint32, enforced bool)
	// Tick is called at every [Interval] by one goroutine. Flush does all that is due at
	// once, for replays.
	Tick(ctx context.Context)
	Flush(ctx context.Context)
	Metrics() []Metric
	// Last returns up to n of the bans that this process has started last, in shadow mode
	// too, newest first.
	Last(n int) []Ban
}

// Metric is one of a worker, read at every scrape.
type Metric struct {
	Name, Help string
	Labels     []string
	Read       func(value Value)
}

// Value receives one value of a metric.
type Value func(n int64, labels ...string)

// Counter returns a metric that only grows. It is read with [Metric.By].
func Counter(name, help string, labels ...string) Metric {
	return Metric{Name: name, Help: help, Labels: labels}
}

// By returns m with what reads it.
func (m Metric) By(read func(value Value)) Metric {
	m.Read = read
	return m
}

// Bans counts the bans of a rule by a feature, and the keys that were banned. In shadow mode
// it counts those that would have been.
type Bans struct {
	By   string `json:"-"`
	Mode string `json:"mode"`
	Bans int64  `json:"bans"`
	Keys int64  `json:"keys"`
}

package redis

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/headgate/headgate/store"
)

//go:embed lua
var lua embed.FS

// script is one Lua script. Its name on the server is its SHA-1, so a changed text is
// another script, and versions can coexist.
type script struct {
	text, sha string
}

// newScript joins files of lua/, given without extension.
func newScript(files ...string) *script {
	parts := make([]string, len(files))
	for i, name := range files {
		part, _ := lua.ReadFile("lua/" + name + ".lua") // all files are embedded
		parts[i] = string(part)
	}
	return textScript(strings.Join(parts, "\n"))
}

func textScript(text string) *script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}

// scripts holds one script per algorithm and one for calls that mix them. A script
// defines its functions again for every call, so the fewer it has, the faster it is;
// the most common call is answered before any are defined.
type scripts struct {
	single [store.Distinct + 1]*script
	shared *script // of a token bucket with fair shares
	// mixed are by which of withLeases, withValues and withShares they can do too, which
	// would make the others slower.
	mixed [withLeases + withValues + withShares + 1]*script
	times *script // reads the times of a key; nil if they are not recorded
}

// What a mixed script can do besides the algorithms that count requests.
const (
	withLeases = 1
	withValues = 2
	withShares = 4
)

func newScripts(o *Options) *scripts {
	var first []string
	var times *script
	if o.KeyTimes {
		first, times = []string{"key_times"}, newScript("key_times_read")
	}
	compose := func(files ...string) *script {
		n := slices.IndexFunc(files, func(file string) bool { return file == "distinct" || file == "fair" }) // they need the step
		if n < 0 {
			n = len(files)
		}
		return newScript(slices.Concat(first, files[:n], []string{"step"}, files[n:], []string{"main"})...)
	}
	bucket := compose("token_bucket_take", "common", "token_bucket")
	// The takes contain how these algorithms write their states.
	mixed := []string{
		"fixed_window_take", "sliding_window_take", "common", "token_bucket", "window", "fixed_window", "sliding_log", "sliding_window", "sliding_buckets",
	}
	s := &scripts{
		single: [...]*script{
			store.TokenBucket:    bucket,
			store.LeakyBucket:    bucket,
			store.FixedWindow:    compose("fixed_window_take", "common", "window", "fixed_window"),
			store.SlidingLog:     compose("sliding_log_take", "common", "sliding_log"),
			store.SlidingWindow:  compose("sliding_window_take", "common", "sliding_window"),
			store.SlidingBuckets: compose("sliding_buckets_take", "common", "sliding_buckets"),
			store.Concurrency:    compose("common", "sliding_log", "concurrency"),
			store.Distinct:       compose("common", "window", "distinct"),
		},
		shared: compose("common", "token_bucket", "fair"),
		times:  times,
	}
	for with := range s.mixed {
		files := slices.Clone(mixed)
		for i, file := range [...]string{"concurrency", "distinct", "fair"} {
			if with>>i&1 == 1 {
				files = append(files, file)
			}
		}
		s.mixed[with] = compose(files...)
	}
	return s
}

// of returns the script for op alone.
func (s *scripts) of(op *store.Op) *script {
	if op.Shared() != nil {
		return s.shared
	}
	return s.single[op.Rule.Algorithm]
}

// join returns the script that can do what both can; was may be nil.
func (s *scripts) join(was, own *script) *script {
	if was == nil || was == own {
		return own
	}
	return s.mixed[s.rare(was)|s.rare(own)]
}

// rare returns which of withLeases, withValues and withShares a script can do.
func (s *scripts) rare(known *script) int {
	switch known {
	case s.single[store.Concurrency]:
		return withLeases
	case s.single[store.Distinct]:
		return withValues
	case s.shared:
		return withShares
	}
	return max(slices.Index(s.mixed[:], known), 0)
}

package redis

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/headgate/headgate"
)

//go:embed lua/common.lua
var commonLua string

//go:embed lua/token_bucket_take.lua
var tokenBucketTakeLua string

//go:embed lua/token_bucket.lua
var tokenBucketLua string

//go:embed lua/fixed_window.lua
var fixedWindowLua string

//go:embed lua/fixed_window_take.lua
var fixedWindowTakeLua string

//go:embed lua/sliding_window_take.lua
var slidingWindowTakeLua string

//go:embed lua/sliding_buckets_take.lua
var slidingBucketsTakeLua string

//go:embed lua/sliding_log_take.lua
var slidingLogTakeLua string

//go:embed lua/sliding_log.lua
var slidingLogLua string

//go:embed lua/sliding_window.lua
var slidingWindowLua string

//go:embed lua/sliding_buckets.lua
var slidingBucketsLua string

//go:embed lua/concurrency.lua
var concurrencyLua string

//go:embed lua/step.lua
var stepLua string

//go:embed lua/main.lua
var mainLua string

// script is one Lua script. Its name on the server is its SHA-1, so that a
// change of the text is another script and versions can live side by side.
type script struct {
	text, sha string
}

func newScript(parts ...string) *script {
	text := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}

// scripts are one script per algorithm and one for calls that mix them. A
// script defines its functions anew for every call, so that the fewer it has
// the faster it is; the commonest call is answered before any is defined.
type scripts struct {
	single [headgate.Concurrency + 1]*script
	mixed  *script
	// leases is mixed with Concurrency among them, which would make the others
	// slower.
	leases *script
}

func newScripts() *scripts {
	compose := func(first string, algorithms ...string) *script {
		parts := append([]string{first, commonLua}, algorithms...)
		return newScript(append(parts, stepLua, mainLua)...)
	}
	// They say how these algorithms write their states.
	formats := fixedWindowTakeLua + "\n" + slidingWindowTakeLua
	bucket := compose(tokenBucketTakeLua, tokenBucketLua)
	return &scripts{
		single: [...]*script{
			headgate.TokenBucket:    bucket,
			headgate.LeakyBucket:    bucket,
			headgate.FixedWindow:    compose(fixedWindowTakeLua, fixedWindowLua),
			headgate.SlidingLog:     compose(slidingLogTakeLua, slidingLogLua),
			headgate.SlidingWindow:  compose(slidingWindowTakeLua, slidingWindowLua),
			headgate.SlidingBuckets: compose(slidingBucketsTakeLua, slidingBucketsLua),
			headgate.Concurrency:    compose("", slidingLogLua, concurrencyLua),
		},
		mixed:  compose(formats, tokenBucketLua, fixedWindowLua, slidingLogLua, slidingWindowLua, slidingBucketsLua),
		leases: compose(formats, tokenBucketLua, fixedWindowLua, slidingLogLua, slidingWindowLua, slidingBucketsLua, concurrencyLua),
	}
}

// join returns the script that can do what both can; was may be nil.
func (s *scripts) join(was, own *script) *script {
	leases := s.single[headgate.Concurrency]
	switch {
	case was == nil || was == own:
		return own
	case own == leases || was == leases || was == s.leases:
		return s.leases
	}
	return s.mixed
}

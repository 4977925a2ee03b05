package spelling_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/request/spelling"
)

// The time for a text of thousands of parts is linear in its length.
func TestManySignedParts(t *testing.T) {
	for _, part := range []string{"AAAAAAAAAAAAAAAAAAAA=.", "AAAAAAAAAAAAAAAAAAA*A."} {
		text := "Bearer " + strings.Repeat(part, 60<<10/len(part))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		spelling.Credentials(text)
		readings := spelling.AppendCredentials(nil, text)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 100*uint64(len(text)) {
			t.Errorf("%d readings of %d bytes took %d bytes", len(readings), len(text), took)
		}
	}
}

// All parts of an encrypted token (RFC 7516) are base64, even the short one with its
// nonce.
func TestEncryptedTokens(t *testing.T) {
	const head, rest = "Bearer eyJhbGciOiJkaXIiLCJlbmMiOiJBMjU2R0NNIn0..", ".Y2lwaGVydGV4dGNpcGhlcnRleHQ.dGFndGFndGFndGFndGFn"
	const nonce = "bm9uY2Vub25jZQ"
	for _, other := range []string{"bm9uY2!Vub25jZQ", "bm9uY2Vub25jZQ=", "bm9uY2Vub25jZQ!*", "!bm9uY2Vub25jZQ"} {
		found := append(spelling.AppendCredentials(nil, head+other+rest), spelling.Credentials(head+other+rest))
		if plain := head + nonce + rest; !slices.Contains(found, plain) {
			t.Errorf("%s: %q has no %s", other, found, plain)
		}
	}
}

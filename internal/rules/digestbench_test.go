package rules

import (
	"testing"
)

func BenchmarkDigest(b *testing.B) {
	for name, secret := range map[string]KeySecret{"hmac": "0123456789abcdef0123456789abcdef", "sha256": ""} {
		b.Run(name, func(b *testing.B) {
			d, space := newDigester(secret), make([]byte, 0, 64)
			b.ReportAllocs()
			for b.Loop() {
				space = d.appendPart(space[:0], "sk-live-0123456789abcdef")
			}
		})
	}
}

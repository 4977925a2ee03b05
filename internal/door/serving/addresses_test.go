package serving

import "testing"

// TestOverlap: which addresses two listeners cannot both have.
func TestOverlap(t *testing.T) {
	for _, row := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"127.0.0.1:80", "127.0.0.1:81", false},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"127.0.0.1:0", "127.0.0.1:0", false}, // any free port
		{":80", "127.0.0.1:80", true},
		{"127.0.0.1:80", "[::]:80", true},
		{"0.0.0.0:80", "[::]:80", true},
		{"localhost:80", "127.0.0.1:80", true},
		{"[::ffff:127.0.0.1]:80", "127.0.0.1:80", true},
		{"[::1]:80", "127.0.0.1:80", false},
		{"a.example:80", "a.example:80", true},
		{"a.example:80", "b.example:80", false},
		{"unix:/run/a", "unix:/run/a", true},
		{"unix:/run/a", "unix:/run/b", false},
		{"unix:/run/a", "127.0.0.1:80", false},
	} {
		if overlap(row.a, row.b) != row.want || overlap(row.b, row.a) != row.want {
			t.Errorf("%s and %s: %t", row.a, row.b, !row.want)
		}
	}
}

package main

import (
	"testing"
	"time"
)

func TestTimesThatGoBy(t *testing.T) {
	for _, row := range []struct {
		d    time.Duration
		want string
	}{
		{0, "0s"},
		{-3 * time.Second, "-3s"},
		{1499 * time.Millisecond, "1s"},
		{24 * time.Hour, "24h"},
		{24*time.Hour - time.Millisecond, "24h"},
		{26*time.Hour + 5*time.Minute, "26h5m"},
		{47*time.Hour + 59*time.Minute + 59*time.Second, "47h59m59s"},
		{50*time.Hour + 29*time.Minute, "2d2h"},
		{720*time.Hour - time.Second, "30d"},
		{719 * time.Hour, "29d23h"},
	} {
		if got := roughly(row.d); got != row.want {
			t.Errorf("%s: %s, want %s", row.d, got, row.want)
		}
	}
}

package serving

import (
	"log/slog"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/door"
)

// The stall_timeout of a door holds where its clients connect, so on the shared port too.
func TestStallTimeoutHoldsOnTheSharedPort(t *testing.T) {
	t.Parallel()
	web := door.Door{Section: config.Section{Name: "web", Default: "127.0.0.1:1", Shares: true, OverHTTP: true, Public: true}}
	other := door.Door{Section: config.Section{Name: "other", Default: "127.0.0.1:2", Shares: true}}
	alone := door.Door{Section: config.Section{Name: "alone", Default: "127.0.0.1:3", OverHTTP: true, Public: true}}
	list := []door.Door{other, alone, web, Shared()}
	for _, row := range []struct {
		flags map[string]string
		want  map[string]time.Duration
	}{
		{map[string]string{"web.stall_timeout": "3s"}, map[string]time.Duration{"web": 3 * time.Second}},
		{map[string]string{"web.stall_timeout": "3s", "listen.shared": "127.0.0.1:4"}, map[string]time.Duration{"web": 3 * time.Second, "shared": 3 * time.Second}},
		{map[string]string{"web.stall_timeout": "off", "listen.shared": "127.0.0.1:4"}, map[string]time.Duration{"web": -1, "shared": -1}},
		{map[string]string{"web.stall_timeout": "3s", "listen.shared": "127.0.0.1:4", "listen.web": "127.0.0.1:5"}, map[string]time.Duration{"web": 3 * time.Second}},
		{map[string]string{"alone.stall_timeout": "3s", "listen.shared": "127.0.0.1:4"}, map[string]time.Duration{"alone": 3 * time.Second}},
	} {
		sections := make([]config.Section, len(list))
		for i := range list {
			sections[i] = list[i].Section
		}
		c, err := config.Load(config.Sources{NoFile: true, Flags: row.flags, Doors: sections, Environment: func(string) (string, bool) { return "", false }})
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(Options{Config: c, List: list, Logger: slog.New(slog.DiscardHandler), Clock: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range d.kinds {
			if got := max(d.terms(k).Pause, -1); got != row.want[k.Name] {
				t.Errorf("%v: %s has %s, want %s", row.flags, k.Name, got, row.want[k.Name])
			}
		}
	}
}

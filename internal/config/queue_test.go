package config_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

func TestQueueSettings(t *testing.T) {
	for _, c := range []struct{ key, value, status, wrong string }{
		{"queue.status_path", "/later", "/later/", ""},
		{"queue.status_path", "/a/b/", "/a/b/", ""},
		{"queue.status_path", "off", "", ""},
		{"queue.replicas", "2", config.DefaultQueueStatus, ""},
		{"queue.status_path", "/", "", "is not a valid path prefix"},
		{"queue.status_path", "later", "", "is not a valid path prefix"},
		{"queue.status_path", "/a?b", "", "is not a valid path prefix"},
		{"queue.status_path", "/a//b", "", "is not a valid path prefix"},
		{"queue.replicas", "-1", "", "is not a whole number from 0 to 100"},
	} {
		got, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: none, Flags: map[string]string{c.key: c.value}})
		switch {
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s: %s: %v", c.key, c.value, err)
		case c.wrong == "" && (err != nil || got.Queue.StatusPath != c.status):
			t.Errorf("%s: %s: %v, %v", c.key, c.value, got, err)
		}
	}
}

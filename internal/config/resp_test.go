package config_test

import (
	"testing"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// The Redis protocol is not opened to other machines without authentication.
func TestRedisProtocolExposed(t *testing.T) {
	for _, test := range []struct {
		set     map[string]string
		refused bool
	}{
		{map[string]string{}, false},
		{map[string]string{"listen.resp": "off"}, false},
		{map[string]string{"listen.resp": "[::1]:6380"}, false},
		{map[string]string{"listen.resp": ":6380"}, true},
		{map[string]string{"listen.resp": "0.0.0.0:6380"}, true},
		{map[string]string{"listen.resp": "10.0.0.1:6380"}, true},
		{map[string]string{"listen.resp": "example.com:6380"}, true},
		{map[string]string{"listen.resp": ":6380", "resp.tls.cert": "c", "resp.tls.key": "k"}, true},
		{map[string]string{"listen.resp": ":6380", "resp.password": "secret"}, false},
		{map[string]string{"listen.resp": ":6380", "resp.tls.cert": "c", "resp.tls.key": "k", "resp.tls.client_ca": "ca"}, false},
	} {
		_, err := config.Load(config.Sources{Doors: app.Sections(), NoFile: true, Environment: none, Flags: test.set})
		if (err != nil) != test.refused {
			t.Errorf("%v: %v", test.set, err)
		}
	}
}

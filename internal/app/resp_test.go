package app_test

import (
	"bufio"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/app"
	"github.com/headgate/headgate/internal/config"
)

// The Redis protocol counts in the same store and by the same rules as the
// other doors, and drains with them.
func TestRedisProtocol(t *testing.T) {
	const text = "domain: api\nlimits:\n  - {name: user, key: [user], rate: 2/minute}\n"
	f := run(t, text, nil, func(c *config.Config) { c.Listen.RESP, c.RESP.Password = "127.0.0.1:0", "secret" })
	c, err := net.Dial("tcp", f.Addr(app.DoorRESP))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	lines := bufio.NewReader(c)
	for _, row := range [][2]string{
		{"HG.CHECK api user ann", "-NOAUTH"},
		{"AUTH secret", "+OK"},
		{"CL.THROTTLE k 0 1 60", "*5 :0 :1 :0 :-1 :60"},
		{"HG.CHECK api 2 user ann", "*8 :1 $4 user :2 :0 :0 :60000 $2 ok :0"},
		{"HG.CHECK api user ann", "*8 :0 $4 user :2 :0 :30000 :60000 $7 limited :0"},
	} {
		if _, err := c.Write([]byte(row[0] + "\r\n")); err != nil {
			t.Fatal(err)
		}
		for want := range strings.FieldsSeq(row[1]) {
			if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, want) {
				t.Fatalf("%s: %q, %v, want %s", row[0], line, err, want)
			}
		}
	}
	if err := f.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := lines.ReadByte(); err == nil {
		t.Error("the connection is still open")
	}
}

func TestRedisProtocolWithoutItsCertificate(t *testing.T) {
	f := newFixture(t, "domain: api\nlimits: []\n", nil, func(c *config.Config) {
		c.Listen.RESP, c.RESP.TLS.Cert = "127.0.0.1:0", filepath.Join(t.TempDir(), "none.pem")
	})
	err := f.Start(t.Context())
	if wrong, ok := errors.AsType[*config.SourceError](err); !ok || wrong.Source != "resp.tls" {
		t.Errorf("Start: %v", err)
	}
}

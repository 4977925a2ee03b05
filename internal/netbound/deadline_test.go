package netbound_test

import (
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/netbound"
)

// noting is a connection that notes the write deadlines it is given.
type noting struct {
	net.Conn

	deadlines []time.Time
}

func (n *noting) SetDeadline(t time.Time) error { return n.SetWriteDeadline(t) }

func (n *noting) SetWriteDeadline(t time.Time) error {
	n.deadlines = append(n.deadlines, t)
	return nil
}

func (*noting) Close() error { return nil }

// single is a listener with one connection.
type single struct {
	net.Listener

	conn net.Conn
}

func (s single) Accept() (net.Conn, error) { return s.conn, nil }

// A deadline that is hardly later than the one before need not be set; every
// other must be, above all one that is to end a write at once.
func TestWriteDeadlines(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC)
	at := func(seconds float64) time.Time { return base.Add(time.Duration(seconds * float64(time.Second))) }
	const whole = -1 // SetDeadline(at(20)) in place of a write deadline
	for _, row := range []struct {
		name  string
		slack time.Duration
		asked []float64 // seconds after base; 0 for none
		set   []float64
	}{
		{"each, without slack", 0, []float64{20, 20.5, 21}, []float64{20, 20.5, 21}},
		{"one in two seconds", 2 * time.Second, []float64{20, 20, 20.5, 21.9, 22, 23, 24.1}, []float64{20, 22, 24.1}},
		{"at once", 2 * time.Second, []float64{20, 1, 20.5}, []float64{20, 1, 20.5}},
		{"none, and one again", 2 * time.Second, []float64{20, 0, 20.5, 0, 0}, []float64{20, 0, 20.5, 0, 0}},
		{"both deadlines in between", 2 * time.Second, []float64{30, whole, 20.5, 22.5}, []float64{30, 20, 22.5}},
	} {
		below := &noting{}
		l := netbound.New(single{conn: below}, netbound.Options{Max: 1, WriteSlack: row.slack, Logger: slog.New(slog.DiscardHandler)})
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range row.asked {
			switch s {
			case whole:
				err = c.SetDeadline(at(20))
			case 0:
				err = c.SetWriteDeadline(time.Time{})
			default:
				err = c.SetWriteDeadline(at(s))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var want []time.Time
		for _, s := range row.set {
			if s == 0 {
				want = append(want, time.Time{})
			} else {
				want = append(want, at(s))
			}
		}
		if !slices.Equal(below.deadlines, want) {
			t.Errorf("%s: set %v, want %v", row.name, below.deadlines, want)
		}
		_ = c.Close()
	}
}

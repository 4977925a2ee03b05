package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/observe/metrics"
)

func TestScreen(t *testing.T) {
	evil := "a\x1b[2Jb\n" + strings.Repeat("x", 200)
	v := &sight{
		T: time.Date(2026, 11, 21, 11, 0, 12, 0, time.UTC), Seconds: 2,
		Totals: metrics.Totals{Requests: 500, Outcomes: metrics.Outcomes{Allowed: 400, Refused: 100}},
		Rules: []metrics.RuleTick{
			{Domain: "api", Rule: "login", Outcomes: metrics.Outcomes{Allowed: 3, Refused: 100}, Near: 1},
		},
		Top: []admin.TopRule{{Domain: "api", Rule: "login", By: "refused", Total: 100, Keys: []admin.TopKey{
			{Key: metrics.Key{Parts: []*string{&evil, nil}}, Count: 60, Error: 2, Share: 0.6}, {Key: metrics.Key{Hash: "0123456789abcdef"}, Count: 40, Share: 0.4},
		}}},
		Store: metrics.StoreTick{Circuit: "closed", Keys: 7},
	}
	var plain bytes.Buffer
	if err := newScreen(&plain, false).draw(v, "refused"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"11:00:12  last 2s  requests/s: 200 allowed, 50.0 refused, 0 delayed,",
		"store: circuit breaker closed (healthy), 7 keys\n",
		"api     login  1.5        50.0       0          0         0         0         0.5\n",
		"KEYS over the limit of api login: 100 requests in the last 5 to 10 minutes\n",
		"  60 (at most 2 too many)  60.0%  a\\x1b[2Jb\\x0axxx",
		"…  (absent)\n",
		"  40                       40.0%  #0123456789abcdef\n",
	} {
		if !strings.Contains(plain.String(), want) {
			t.Errorf("no %q in\n%s", want, plain.String())
		}
	}
	v.Store.Kind = "memory"
	if text := newScreen(io.Discard, true).text(v, "refused", 0); !strings.Contains(text, "store: memory, 7 keys\n") {
		t.Errorf("of a memory store: %s", text)
	}
	if strings.Contains(plain.String(), "\x1b") {
		t.Errorf("escape sequences in\n%q", plain.String())
	}
	var drawn bytes.Buffer
	s := &screen{w: &drawn, redraws: true, coloured: true}
	restore := s.open()
	if err := s.draw(v, "refused"); err != nil {
		t.Fatal(err)
	}
	restore()
	for _, want := range []string{"\x1b[?1049h", "\x1b[H", "\x1b[1mDOMAIN", "\x1b[J", "\x1b[?1049l"} {
		if !strings.Contains(drawn.String(), want) {
			t.Errorf("no %q in\n%q", want, drawn.String())
		}
	}
	if strings.Contains(drawn.String(), "\x1b[2J") {
		t.Error("a key has cleared the screen")
	}
}

func TestReadEvents(t *testing.T) {
	const stream = ": hello\n\nevent: a\ndata: 1\ndata: 2\n\nevent: b\r\ndata:3\r\n\r\ndata: no name\n\nevent: cut off"
	var got []string
	err := readEvents(strings.NewReader(stream), func(event string, data []byte) error {
		got = append(got, event+"="+string(data))
		return nil
	})
	if strings.Join(got, " ") != "a=12 b=3" || err == nil {
		t.Errorf("%q, %v", got, err)
	}
}

package announce_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/observe/warning"
	"github.com/headgate/headgate/store/memory"
)

// transport answers requests.
type transport func(r *http.Request) (status int, err error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	status, err := t(r)
	if err != nil {
		return nil, err
	}
	body := io.NopCloser(strings.NewReader(""))
	if status == http.StatusSwitchingProtocols {
		body, _ = io.Pipe() // the connection, which does not end
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Location": {"/elsewhere"}}, Body: body, Request: r}, nil
}

// answers answers with a status.
func answers(status int) transport {
	return func(*http.Request) (int, error) { return status, nil }
}

// hooked is a server with a webhook.
func hooked(t *testing.T, through transport) *server {
	t.Helper()
	s := newServer(t, memory.New(), warning.Policy{Settings: warning.Default(), Webhook: &url.URL{Scheme: "https", Host: "hooks.example", Path: "/hush"}})
	s.Through(through)
	return s
}

// A message is tried three times, in order with the others, and then lost. The log says
// once that the webhook fails and once that it works again, without its URL.
func TestAMessageIsTriedThreeTimes(t *testing.T) {
	for name, fail := range map[string]transport{
		"status":   answers(http.StatusServiceUnavailable),
		"redirect": answers(http.StatusFound),
		"switches": answers(http.StatusSwitchingProtocols),
		"error":    func(*http.Request) (int, error) { return 0, errors.New("refused") },
		"hangs": func(r *http.Request) (int, error) {
			<-r.Context().Done()
			return 0, r.Context().Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var tried []string
				works := false
				s := hooked(t, func(r *http.Request) (int, error) {
					body, _ := io.ReadAll(r.Body)
					tried = append(tried, string(body))
					if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || r.URL.String() != "https://hooks.example/hush" {
						t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
					}
					if works {
						return http.StatusNoContent, nil
					}
					return fail(r)
				})
				s.Send([]byte("a"))
				s.Send([]byte("b"))
				time.Sleep(time.Minute)
				synctest.Wait()
				works = true
				s.Send([]byte("c"))
				synctest.Wait()
				s.stop()
				if got := strings.Join(tried, ""); got != "aaabbbc" {
					t.Errorf("tried %s", got)
				}
				text := gather(t, s)
				for _, want := range []string{`{result="delivered",webhook="hooks.example"} 1`, `{result="failed",webhook="hooks.example"} 2`} {
					if !strings.Contains(text, want) {
						t.Errorf("no %s in %s", want, text)
					}
				}
				log := s.log.String()
				if strings.Count(log, `level=WARN msg="a warning could not be sent, and is lost" webhook=hooks.example`) != 1 ||
					strings.Count(log, `level=INFO msg="the webhook takes warnings again"`) != 1 || strings.Contains(log, "hush") {
					t.Error(log)
				}
			})
		})
	}
}

// A message that arrives at the second attempt is delivered.
func TestASecondAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s := hooked(t, func(*http.Request) (int, error) {
			if n++; n == 1 {
				return http.StatusInternalServerError, nil
			}
			return http.StatusOK, nil
		})
		s.Send([]byte("a"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if text := gather(t, s); n != 2 || !strings.Contains(text, `{result="delivered",webhook="hooks.example"} 1`) || s.log.Len() > 0 {
			t.Errorf("%d attempts: %s%s", n, text, s.log.String())
		}
	})
}

// A webhook that fails holds a bounded number of messages; more are lost.
func TestMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hooked(t, answers(http.StatusServiceUnavailable))
		s.Send([]byte("first"))
		synctest.Wait() // it is being sent
		for range 103 {
			s.Send([]byte("a"))
		}
		if text := gather(t, s); !strings.Contains(text, `{result="failed",webhook="hooks.example"} 3`) {
			t.Error(text)
		}
		s.stop()
	})
}

// The stop sends what waits once, tries nothing again, and ends in time.
func TestTheStopSendsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := 0
		s := hooked(t, func(*http.Request) (int, error) { tried++; return http.StatusServiceUnavailable, nil })
		for range 3 {
			s.Send([]byte("a"))
		}
		synctest.Wait()
		began := time.Now()
		s.stop()
		s.Send([]byte("too late"))
		if tried != 3 || time.Since(began) > 0 {
			t.Errorf("%d attempts in %s", tried, time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := hooked(t, func(r *http.Request) (int, error) {
			<-r.Context().Done()
			return 0, r.Context().Err()
		})
		s.Send([]byte("a"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/door/selfservice"
	"github.com/headgate/headgate/store/memory"
)

func TestLimitsOfACaller(t *testing.T) {
	a := newAPI(t, memory.New())
	for range 6 {
		a.check(`{"domain":"api","attributes":{"method":"POST","path":"/login","client_ip":"198.51.100.7"}}`)
	}
	w := a.do("POST", "/v1/limits", `{"domain":"api","attributes":{"client_ip":"198.51.100.7"}}`)
	var got selfservice.Answer
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s, %v", w.Code, w.Body, err)
	}
	l := got.Limits[0]
	if l.Name != "login" || l.Limit != 5 || l.Remaining != 0 || *l.RetryAfter != 12_000 || l.Reset == nil {
		t.Errorf("%+v", l)
	}
}

func TestLimitsRefusesBadBodies(t *testing.T) {
	a := newAPI(t, memory.New())
	for _, row := range []struct {
		method, body string
		status       int
		want         string
	}{
		{"GET", "", 405, "only accepts POST"},
		{"POST", "", 400, "the body must be a JSON object, found the end of the body"},
		{"POST", `{"domain":""}`, 400, `\"domain\" must not be empty`},
		{"POST", `{"domain":"api","cost":2}`, 400, `unknown field \"cost\"; known are \"domain\", \"attributes\"`},
		{"POST", `{"domain":"api","attributes":{"headers:X":"1"}}`, 400, `did you mean \"header:\"?`},
		{"POST", `{"domain":"api","attributes":{"client_ip":"7"}}`, 400, "must be an IP address"},
		{"POST", `{"domain":"nowhere"}`, 404, "no rules are loaded for this domain"},
		{"POST", `{"domain":"api"} x`, 400, "expected the end of the body"},
	} {
		if w := a.do(row.method, "/v1/limits", row.body); w.Code != row.status || !strings.Contains(w.Body.String(), row.want) {
			t.Errorf("%s %s: %d %s", row.method, row.body, w.Code, w.Body)
		}
	}
}

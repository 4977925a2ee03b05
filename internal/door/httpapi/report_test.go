package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/rules/rulefile"
	"github.com/headgate/headgate/store/memory"
)

// told is what the tests read of an answer.
type told struct {
	Allowed   bool
	Remaining int64
	Report    string
	Lease     string
}

func (a *api) told(t *testing.T, body string) (list []told) {
	t.Helper()
	var answer struct {
		told
		Results []told
	}
	w := a.check(body)
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if answer.Results == nil {
		return []told{answer.told}
	}
	return answer.Results
}

const failedBody = `{"domain":"api","attributes":{"path":"/failed"}}`

// A check under a rule with charge_on has a report, with which the answer settles it,
// once. A check that is not reported counts.
func TestReports(t *testing.T) {
	a := newAPI(t, memory.New())
	for _, row := range []struct {
		answer, want string
		left         int64 // of 5, after the next check
	}{
		{`"status":200`, `{"reported":true,"counted":false}`, 4},
		{`"status":401`, `{"reported":true,"counted":true}`, 3},
		{`"status":200,"grpc":0`, `{"reported":true,"counted":false}`, 3},
		{`"grpc":16`, `{"reported":true,"counted":true}`, 2},
		{`"grpc":"OK","headers":{"x-login":["ok","failed"]}`, `{"reported":true,"counted":true}`, 1},
	} {
		report := a.told(t, failedBody)[0].Report
		if report == "" {
			t.Fatal("no report")
		}
		body := fmt.Sprintf(`{"report":%q,%s}`, report, row.answer)
		for _, want := range []string{row.want, `{"reported":false,"reason":"settled"}`} {
			if w := a.do("POST", "/v1/report", body); w.Code != 200 || strings.TrimSpace(w.Body.String()) != want {
				t.Errorf("%s: %d %s, want %s", row.answer, w.Code, w.Body, want)
			}
		}
		peek := a.told(t, strings.Replace(failedBody, "{", `{"peek":true,`, 1))[0]
		if peek.Remaining != row.left+1 || peek.Report != "" {
			t.Errorf("%s: then %+v, want %d", row.answer, peek, row.left+1)
		}
	}
	if one := a.told(t, `{"domain":"api","attributes":{"path":"/trial"}}`)[0]; one.Report != "" {
		t.Errorf("a report without need: %+v", one)
	}
	batch := a.told(t, `{"checks":[`+failedBody+`,`+failedBody+`,`+loginBody+`]}`)
	if batch[0].Report == "" || !batch[0].Allowed || batch[1].Report == "" && batch[1].Allowed || batch[2].Report != "" {
		t.Errorf("in a batch: %+v", batch)
	}
}

// TestReportsOfShares: answers that do not count use up nobody's share of a fair limit.
func TestReportsOfShares(t *testing.T) {
	rs, diagnostics := rulefile.Parse(rulefile.Source{Name: "test.yaml", Data: []byte(`
domain: api
limits:
  - {name: shared, rate: 100/minute, fair: {among: user, horizon: 60s}, charge_on: {status: [401]}}
`)})
	if rs == nil {
		t.Fatal(diagnostics)
	}
	a := newAPIOf(t, rs, memory.New(), answer.DefaultMostBodies)
	for i := range 300 {
		one := a.told(t, `{"domain":"api","attributes":{"user":"alone"}}`)[0]
		if w := a.do("POST", "/v1/report", fmt.Sprintf(`{"report":%q,"status":200}`, one.Report)); !one.Allowed || w.Code != 200 {
			t.Fatalf("request %d: %+v, %d %s", i, one, w.Code, w.Body)
		}
	}
}

// TestReportsThatAreWrong: a body that is wrong is refused with the reason, and settles
// nothing.
func TestReportsThatAreWrong(t *testing.T) {
	a := newAPI(t, memory.New())
	report := a.told(t, failedBody)[0].Report
	for body, want := range map[string]string{
		`{}`:                                              `\"report\" is missing`,
		`{"report":"R"}`:                                  `the answer is missing: give its \"status\", \"grpc\" code or \"headers\"`,
		`{"report":"R","status":"401"}`:                   `\"status\" must be a number`,
		`{"report":"R","status":40}`:                      `\"status\" must be an HTTP status, such as 401`,
		`{"report":"R","status":4.5}`:                     `must be a whole number`,
		`{"report":"R","status":401,"status":200}`:        `duplicate field \"status\"`,
		`{"report":"R","grpc":"Unauthenticated"}`:         `\"grpc\" must be a gRPC code such as \"UNAUTHENTICATED\" or 16, not \"Unauthenticated\"`,
		`{"report":"R","grpc":null}`:                      `\"grpc\" must be a number, found null`,
		`{"report":"R","headers":{"X Y":"z"}}`:            `invalid header name \"X Y\"`,
		`{"report":"R","headers":{"X-Y":1}}`:              `a header's value must be a string`,
		`{"report":"R","headers":["X-Y"]}`:                `\"headers\" must be a JSON object`,
		`{"report":"R","status":401,"header":{}}`:         `unknown field \"header\"; known are \"report\", \"status\", \"grpc\", \"headers\"`,
		`{"report":"R","status":401} x`:                   `expected the end of the body`,
		`{"report":"` + report + `x","status":200}`:       `\"report\" is unknown: it was not issued by this server, or is damaged`,
		`{"report":"` + report[:40] + `","status":200}`:   `\"report\" is unknown`,
		`{"report":"R","headers":{` + many(129) + `}}`:    `an answer must have at most 128 headers`,
		`{"report":"Råäö","status":200}`:                  `\"report\" is unknown`,
		`{"report":"R","status":99999999999999999999999}`: `must be at most`,
	} {
		w := a.do("POST", "/v1/report", body)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%.80s: %d %s, want %s", body, w.Code, w.Body, want)
		}
	}
	if w := a.do("GET", "/v1/report", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", w.Code)
	}
	if left := a.told(t, failedBody)[0].Remaining; left != 3 {
		t.Errorf("%d left, want 3", left)
	}
}

// many returns n header fields.
func many(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`"X-%d":""`, i))
	}
	return strings.Join(list, ",")
}

package api_test

import (
	"reflect"

	"github.com/headgate/headgate/internal/door"
	"github.com/headgate/headgate/internal/door/admin"
	"github.com/headgate/headgate/internal/door/httpapi"
	"github.com/headgate/headgate/internal/door/selfservice"
	"github.com/headgate/headgate/internal/observe/announce"
)

// operation is one way to call a door.
type operation struct {
	door, method, path, summary string
	query                       []parameter
	body                        any // schemas by name, Go types, or nil
	answers                     []reply
	tries                       []try
}

// parameter is in the query of a request.
type parameter struct{ name, what string }

// reply is an answer with a status: a schema by name, several divided by |, a media type
// without a schema, or a Go type.
type reply struct {
	status int
	body   any  // nil if it is empty
	rare   bool // the test does not bring it about: the server must be in trouble
}

// try is a request of the test, and the status of its answer.
type try struct {
	query, body string
	status      int
}

const text = "text/plain"

const (
	problem = "Problem"
	refusal = "Refusal" // a problem too
)

func of[T any]() reflect.Type { return reflect.TypeFor[T]() }

// common describes the schemas of what is read and written by hand.
func common(s *schemas) {
	s.describe("Problem", "type! string", "title! string", "status! integer: the status of the answer", "detail string: what is wrong")
	s.describe("Refusal", "type! string", "title! string", "status! integer: 429, also if deny=403", "detail string", "violated-policies [string]: the rules that refused")
	check := []string{
		"domain string: required, except for a limit in the request", "attributes {string}: what rules match and count by: method, path, host, client_ip, header:NAME, query:NAME, cookie:NAME, jwt:CLAIM or any other name",
		"cost integer: 0 to 2^53-1, default 1; 0 is a dry run",
	}
	s.describe("Check", append(check, "peek boolean: checks without charging", "id string: instead of domain and attributes, for a limit in the request: what it counts by",
		"limit string|integer: such as 5/minute", "algorithm string", "burst string|integer", "refill_every string", "delay_after string|integer", "anchor string",
		"timezone string", "buckets string|integer", "edge string|boolean", "count_denied string|boolean")...)
	s.describe("Checks", "checks! [Check]: up to 1000, decided one after the other")
	s.describe("Reserve", append(check, "ttl_ms integer: the time to settle it in, 1 to 86400000, default 600000")...)
	decision := []string{
		"allowed! boolean: whether the request may pass", "rule string: the rule that refused, or the tightest", "limit integer: the burst of a bucket, or the limit of a window",
		"remaining integer: what would pass now", "retry_after_ms integer|null: 0 if allowed; otherwise when the same request would pass; null means never",
		"reset_after_ms integer: time until the full limit is available", "action string: delay, shadow_ban or queue", "delay_ms integer: how long to hold the request",
		"reason! string: ok, limited, too_large, unlimited, unknown_domain, cached, fail_open, fail_closed, fallback, banned and others", "shadow [string]: rules in shadow mode that would have refused",
	}
	s.describe("Decision", append(decision, "lease string: the slot taken under a concurrency rule", "report string: for POST /v1/report", "created_at string: of a peek", "changed_at string: of a peek")...)
	s.describe("Reservation", append(decision, "reservation string: for commit and cancel, if allowed")...)
	s.describe("Decisions", "results! [Decision]: in the order of the checks")
	s.describe("Commit", "reservation! string", "cost! integer: the real cost")
	s.describe("Cancel", "reservation! string")
	s.describe("Lease", "lease! string")
	s.describe("Report", "report! string: of the decision", "status integer: the status of the answer", "grpc string: its gRPC code, as a name or a number", "headers {string}: its header fields")
	settled := []string{"reason string: settled, expired or gone, if nothing was done", "in_debt boolean", "rules_gone [string]: rules that no longer exist"}
	s.describe("Committed", append([]string{"committed! boolean"}, settled...)...)
	s.describe("Cancelled", append([]string{"cancelled! boolean"}, settled...)...)
	s.describe("Reported", append([]string{"reported! boolean", "counted boolean: whether a rule counts the answer"}, settled...)...)
	s.describe("Released", "released! boolean", "reason string")
	s.describe("Renewed", "renewed! boolean", "lease string: its new name", "reason string")
	s.describe("Asked", "domain string: not needed if there is only one", "attributes {string}")
	s.describe("Explain", "domain string: not needed if there is only one", "attributes {string}", "descriptors [Descriptor]: of Envoy, instead of attributes", "cost integer", "rule string: the only rule to explain")
	s.describe("Descriptor", "entries! [Entry]")
	s.describe("Entry", "key! string", "value string")
	s.describe("Ready", "ready! boolean", "draining! boolean", "store! string: ok, or what is wrong", "rules! RulesState")
	s.goType(of[door.RulesState]())
	s.describe("QueuedRequest", "id! string", "state! string", "accepted_at! string", "attempts! integer", "next_attempt_at string", "delivered_at string", "given_up_at string", "response QueuedResponse")
	s.describe("QueuedResponse", "status! integer", "content_type string", "body string", "body_base64 string", "truncated boolean")
	s.describe("RateLimitRequest", "domain! string", "descriptors! [Descriptor]", "hitsAddend integer: the cost, default 1")
	s.describe("RateLimitResponse", "overallCode! string: OK or OVER_LIMIT", "statuses [RateLimitStatus]: one for each descriptor", "responseHeadersToAdd [Entry]: header fields for the answer", "rawBody string: the body of a refusal, in base64")
	s.describe("RateLimitStatus", "code! string: OK or OVER_LIMIT", "currentLimit object: with name, requestsPerUnit and unit", "limitRemaining integer", "durationUntilReset string: such as 12s")
	s.describe("RuleList", "rules! [RuleStatus]", "lists [ListStatus]")
	s.goType(of[admin.RuleStatus]())
	s.goType(of[admin.ListStatus]())
	s.describe("BlockList", "rules! [RuleBlocks]")
	s.goType(of[admin.RuleBlocks]())
	s.describe("LogLevel", "level! string: debug, info, warn or error")
	s.describe("AuditList", "audit! [AuditEntry]")
	s.goType(of[admin.AuditEntry]())
	s.describe("Nothing")
	s.describe("KeyBody", "domain string: all, if there is none", "rule string: all rules of the domain, if there is none", "key! [string|null]: the parts in order; or an object by attribute",
		"amount integer: of a grant", "for string: a duration, such as 10m", "until string: a time", "rate string: of an override", "burst integer: of an override", "reason string: for the audit log")
}

func operations() []operation {
	const check = `{"domain":"api","attributes":{"path":"/login","client_ip":"198.51.100.7"}}`
	wrong := reply{400, problem, false}
	busy := reply{503, problem, true}
	key := `{"rule":"login","key":["198.51.100.7"]`
	list := []operation{
		{
			"api", "post", "/v1/check", "Ask whether a request may pass, or several", nil, "Check|Checks",
			[]reply{{200, "Decision|Decisions", false}, {429, "Decision", false}, wrong, {403, problem, false}, busy},
			[]try{
				{"", `{"id":"a","limit":"5/minute"}`, 403},
				{"", check, 200},
				{"", `{"domain":"api","attributes":{"path":"/trial"}}`, 200},
				{"", `{"domain":"api","attributes":{"path":"/trial"}}`, 200},
				{"", `{"checks":[` + check + `]}`, 200},
				{"", `{"domain":"api","peek":true,"attributes":{"path":"/login","client_ip":"198.51.100.7"}}`, 200},
				{"", `{"domain":"api","attributes":{"path":"/slot"}}`, 200},
				{"", `{"domain":"api","attributes":{"path":"/failed"}}`, 200},
				{"", `{"domain":"api","attributes":{"path":"/delay"}}`, 200},
				{"", `{"domain":"api","attributes":{"path":"/delay"}}`, 200},
				{"", `{"domain":"api","cost":100,"attributes":{"path":"/login","client_ip":"198.51.100.7"}}`, 429},
				{"", `{"domain":"nowhere"}`, 200},
				{"", `{}`, 400},
			},
		},
		{
			"api", "post", "/v1/reserve", "Charge an estimate", nil, "Reserve",
			[]reply{{200, "Reservation", false}, {429, "Reservation", false}, wrong, busy},
			[]try{
				{"", `{"domain":"api","attributes":{"path":"/delay"}}`, 200},
				{"", `{"domain":"api","attributes":{"path":"/trial"}}`, 200},
				{"", check, 200},
				{"", `{"domain":"api","cost":100,"attributes":{"path":"/login","client_ip":"198.51.100.7"}}`, 429},
				{"", `{"peek":true}`, 400},
			},
		},
		{
			"api", "post", "/v1/commit", "Charge the real cost of a reservation", nil, "Commit",
			[]reply{{200, "Committed", false}, wrong, busy},
			[]try{{"", `{"reservation":"$reservation","cost":2}`, 200}, {"", `{"reservation":"$reservation","cost":2}`, 200}, {"", `{"reservation":"x","cost":2}`, 400}},
		},
		{"api", "post", "/v1/cancel", "Refund a reservation", nil, "Cancel", []reply{{200, "Cancelled", false}, wrong, busy}, []try{{"", `{"reservation":"$reservation"}`, 200}, {"", `{}`, 400}}},
		{"api", "post", "/v1/renew", "Keep a slot", nil, "Lease", []reply{{200, "Renewed", false}, wrong, busy}, []try{{"", `{"lease":"$lease"}`, 200}, {"", `{}`, 400}}},
		{"api", "post", "/v1/release", "Free a slot", nil, "Lease", []reply{{200, "Released", false}, wrong, busy}, []try{{"", `{"lease":"$lease"}`, 200}, {"", `{"lease":"$lease"}`, 200}, {"", `{}`, 400}}},
		{
			"api", "post", "/v1/report", "Say how a request was answered", nil, "Report",
			[]reply{{200, "Reported", false}, wrong, busy},
			[]try{{"", `{"report":"$report","status":401}`, 200}, {"", `{"report":"$report","status":401}`, 200}, {"", `{}`, 400}},
		},
		{
			"api admin", "post", "/v1/limits", "The limits of one caller, without charge", nil, "Asked",
			[]reply{{200, of[selfservice.Answer](), false}, wrong, {404, problem, false}, busy},
			[]try{{"", `{"attributes":{"client_ip":"198.51.100.7"}}`, 200}, {"", `{"attributes":{"client_ip":"x"}}`, 400}, {"", `{"domain":"nowhere"}`, 404}},
		},
		{
			"api admin", "post", "/v1/explain", "Why rules apply to a request or not, without charge", nil, "Explain",
			[]reply{{200, of[httpapi.Explanation](), false}, wrong, {404, problem, true}, busy},
			[]try{{"", check, 200}, {"", `{"attributes":1}`, 400}},
		},
		{"api admin", "get", "/healthz", "Whether the process runs", nil, nil, []reply{{200, text, false}}, []try{{"", "", 200}}},
		{
			"api admin", "get", "/readyz", "Whether the process can serve",
			[]parameter{{"verbose", "true answers with JSON"}},
			nil,
			[]reply{{200, "text/plain|Ready", false}, {503, "text/plain|Ready", true}},
			[]try{{"", "", 200}, {"?verbose", "", 200}},
		},
		{"api", "get", "/healthcheck", "Like /readyz, for deployments of envoyproxy/ratelimit", nil, nil, []reply{{200, text, false}, {503, text, true}}, []try{{"", "", 200}}},
		{
			"api", "get", "/v1/auth", "Forward-auth for a reverse proxy, with any method; see docs/connect/forward-auth.md",
			[]parameter{{"domain", "not needed if there is only one"}, {"deny", "403 instead of 429 for refusals"}, {"cost", ""}},
			nil,
			[]reply{{200, nil, false}, {429, refusal, false}, {403, "Problem|Refusal", false}, wrong},
			[]try{{"", "", 200}, {"?cost=100", "", 429}, {"?cost=100&deny=403", "", 403}, {"?deny=x", "", 400}},
		},
		{"api", "post", "/json", "Envoy's rate limit service in JSON; see docs/connect/envoy.md", nil, "RateLimitRequest", []reply{{200, "RateLimitResponse", false}, {429, "RateLimitResponse", false}, {400, problem, false}}, []try{{"", `{"domain":"api","hits_addend":100,"descriptors":[{"entries":[{"key":"path","value":"/login"},{"key":"client_ip","value":"198.51.100.7"}]}]}`, 429}, {"", `{"domain":"api","descriptors":[{"entries":[{"key":"path","value":"/"}]}]}`, 200}, {"", "x", 400}}},
		{"api", "get", "/v1/queue/{id}", "The state of a queued request", nil, nil, []reply{{200, "QueuedRequest", false}, {404, problem, false}, busy}, []try{{"$id", "", 200}, {"x", "", 404}}},

		{"admin", "get", "/metrics", "Prometheus metrics", nil, nil, []reply{{200, text, false}}, []try{{"", "", 200}}},
		{"admin", "get", "/rlconfig", "The active rules as text", nil, nil, []reply{{200, text, false}}, []try{{"", "", 200}}},
		{"admin", "get", "/v1/status", "The state of the server", nil, nil, []reply{{200, of[admin.Status](), false}, wrong}, []try{{"", "", 200}, {"?x=1", "", 400}}},
		{"admin", "get", "/v1/rules", "The rules and lists", []parameter{{"domain", "only this one"}}, nil, []reply{{200, "RuleList", false}, wrong}, []try{{"?domain=api", "", 200}, {"?x", "", 400}}},
		{"admin", "get", "/v1/blocks", "The rules with sync: blocks", []parameter{{"domain", "only this one"}}, nil, []reply{{200, "BlockList", false}, wrong}, []try{{"?domain=api", "", 200}, {"?x", "", 400}}},
		{"admin", "get", "/v1/regions", "The regions that limits are shared with", nil, nil, []reply{{200, of[admin.Regions](), false}, wrong}, []try{{"", "", 200}, {"?x", "", 400}}},
		{"admin", "get", "/v1/live", "What rules do, as server-sent events", nil, nil, []reply{{200, "text/event-stream", false}, wrong, busy}, []try{{"", "", 200}, {"?x", "", 400}}},
		{
			"admin", "get", "/v1/events", "Decisions, as server-sent events",
			[]parameter{{"domain", ""}, {"rule", ""}, {"outcome", ""}, {"key", ""}, {"sample", "the share of them, above 0 and at most 1"}},
			nil,
			[]reply{{200, "text/event-stream", false}, wrong, busy},
			[]try{{"", "", 200}, {"?sample=2", "", 400}},
		},
		{
			"admin", "get", "/v1/top", "The busiest or most refused keys",
			[]parameter{{"domain", ""}, {"rule", ""}, {"by", "refused or active"}, {"n", "how many keys of a rule"}},
			nil,
			[]reply{{200, of[admin.TopRules](), false}, wrong, {404, problem, false}},
			[]try{{"?by=active", "", 200}, {"?n=0", "", 400}, {"?rule=x", "", 404}},
		},
		{"admin", "get", "/v1/warnings", "Early warnings", nil, nil, []reply{{200, of[announce.Status](), false}}, []try{{"", "", 200}}},
		{"admin", "get", "/v1/log-level", "The log level", nil, nil, []reply{{200, "LogLevel", false}}, []try{{"", "", 200}}},
		{"admin", "put", "/v1/log-level", "Set the log level, until the next start", nil, "LogLevel", []reply{{200, "LogLevel", false}, wrong}, []try{{"", `{"level":"info"}`, 200}, {"", `{"level":"x"}`, 400}}},
		{"admin", "post", "/v1/rules/rollback", "Undo a reload", nil, "Nothing", []reply{{200, of[admin.RulesChange](), true}, wrong, {409, problem, false}}, []try{{"", "{}", 409}, {"", "x", 400}}},
		{"admin", "post", "/v1/rules/accept", "Accept refused rules", nil, "Nothing", []reply{{200, of[admin.RulesChange](), true}, wrong, {409, problem, false}}, []try{{"", "{}", 409}, {"", "x", 400}}},
		{"admin", "get", "/v1/candidate", "How the candidate rules differ", []parameter{{"n", "how many keys of a rule"}}, nil, []reply{{200, of[admin.CandidateStatus](), false}, wrong, {404, problem, true}}, []try{{"", "", 200}, {"?n=x", "", 400}}},
		{"admin", "post", "/v1/candidate/reset", "Begin the comparison again", nil, "Nothing", []reply{{200, of[admin.CandidateStatus](), false}, wrong, {404, problem, true}}, []try{{"", "", 200}, {"", "x", 400}}},
		{"admin", "get", "/v1/overrides", "Bans and overrides", []parameter{{"domain", ""}, {"rule", ""}, {"n", "how many"}}, nil, []reply{{200, of[admin.Overrides](), false}, wrong}, []try{{"", "", 200}, {"?n=x", "", 400}}},
		{"admin", "get", "/v1/audit", "The last changes of operators", []parameter{{"n", "how many"}}, nil, []reply{{200, "AuditList", false}, wrong}, []try{{"", "", 200}, {"?n=x", "", 400}}},
		{"admin", "get", "/v1/queue", "The queues", nil, nil, []reply{{200, of[admin.QueueList](), false}, wrong, busy}, []try{{"", "", 200}, {"?x", "", 400}}},
		{"admin", "get", "/v1/queue/items", "Queued requests", []parameter{{"state", "pending or dead"}, {"domain", ""}, {"rule", ""}, {"n", "how many"}}, nil, []reply{{200, of[admin.QueueItems](), false}, wrong, {404, problem, true}, busy}, []try{{"", "", 200}, {"?n=x", "", 400}}},
		{"admin", "get", "/v1/queue/items/{id}", "One queued request", []parameter{{"body", "true for its body too"}}, nil, []reply{{200, of[admin.QueueItem](), false}, wrong, {404, problem, false}, busy}, []try{{"$id", "", 200}, {"$id?x", "", 400}, {"x", "", 404}}},
		{"admin", "post", "/v1/queue/retry", "Send failed requests again", nil, of[admin.QueueChange](), []reply{{200, of[admin.QueueChange](), false}, wrong, {404, problem, true}, busy}, []try{{"", `{"ids":["x"]}`, 200}, {"", "x", 400}}},
		{"admin", "post", "/v1/queue/drop", "Drop queued requests", nil, []reflect.Type{of[admin.QueueChange](), of[admin.QueueDropKey]()}, []reply{{200, of[admin.QueueChange](), false}, wrong, {404, problem, true}, busy}, []try{{"", `{"ids":["$id"]}`, 200}, {"", `{"rule":"later","key":[]}`, 200}, {"", "x", 400}}},
	}
	bodies := map[string]string{"grant": `,"amount":1,"for":"1m"`, "ban": `,"for":"1m"`, "override": `,"rate":"9/minute","for":"1m"`}
	for _, a := range admin.KeyActions() {
		list = append(list, operation{
			"admin", "post", "/v1/keys/" + a.Name, "Single keys: " + a.Summary, nil, "KeyBody",
			[]reply{{200, []reflect.Type{of[admin.KeyAnswer](), of[admin.KeyAnswers]()}, false}, wrong, {404, problem, false}, {507, problem, true}, busy},
			[]try{{"", key + bodies[a.Name] + "}", 200}, {"", "{}", 400}, {"", `{"rule":"x","key":["198.51.100.7"]` + bodies[a.Name] + "}", 404}},
		})
	}
	return list
}

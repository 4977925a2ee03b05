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

// everywhere says what fields mean that are the same in all objects which do not say it.
var everywhere = map[string]string{
	"domain": "the domain of the rule", "rule": "the name of the rule", "name": "the name of the rule",
	"file": "the file that it is in", "line": "its line in the file", "key_hash": "the key's hash, if keys are not shown",
	"rate": "the limit, as in rules: 100/minute", "algorithm": "token_bucket, sliding_log and so on",
}

// reasons says what the reasons of decisions mean, in the order of their values, and after them
// those that only answers have.
func reasons() [][2]string {
	return [][2]string{
		{"ok", "within the limits"},
		{"limited", "over a limit: the same request passes later"},
		{"too_large", "the cost can never fit the limit"},
		{"fail_open", "the store did not answer, and `on_store_error: allow` let it pass; `remaining` and `reset_after_ms` are absent"},
		{"fail_closed", "the store did not answer, and `on_store_error: deny` refused it"},
		{"fallback", "the store did not answer, and the memory of this process decided (`on_store_error: local`)"},
		{"cached", "over a limit, from the [deny cache](../run/failure.md#the-deny-cache): the store was not asked"},
		{"shadow", "a rule in shadow mode would have refused it"},
		{"unlimited", "no limit applies"},
		{"banned", "the key is [banned](../watch/keys.md), or on a [deny list](../rules/lists.md)"},
		{"expired", "the slot to renew was free already"},
		{"headroom", "what is left is kept for requests of a higher class: the same request passes later"},
		{"share", "the caller has used more than its fair share, and there is not enough for all: the same request passes later"},
		{"unknown_domain", "the domain has no rules; the setting [`unknown_domain`](settings.md#rules) decides"},
	}
}

// statuses says what the statuses of answers mean.
func statuses() [][2]string {
	return [][2]string{
		{"200", "done; of a check: it may pass"},
		{"400", "the request is malformed: JSON that is not valid; an unknown, duplicate, missing or wrong field or parameter"},
		{"401", "the token is missing or wrong"},
		{"403", "not from here: an unknown host name, or a web page of another origin ([access](../connect/http-api.md#access)); a limit in the request that the server does not allow; a refusal, with `deny=403`"},
		{"404", "no such path, domain, rule or queued request; or the server hides it"},
		{"405", "wrong method"},
		{"408", "the body took longer than [10 s](../run/tls.md#connection-limits)"},
		{"409", "there is nothing to undo or to accept"},
		{"413", "the body is larger than 1 MiB, at the admin door 64 KiB"},
		{"429", "refused; `Retry-After` says when the same request passes"},
		{"503", "[overloaded](../run/overload.md), or the store does not answer: try again"},
		{"507", "too many bans and overrides: the table is full"},
	}
}

// common describes the schemas of what is read and written by hand.
func common(s *schemas) {
	s.describe("Problem", "type! string: a URI that names the kind of problem", "title! string: the problem in a few words", "status! integer: the status of the answer", "detail string: what is wrong")
	s.describe("Refusal", "type! string: a URI that names the kind of problem", "title! string: the problem in a few words", "status! integer: 429, also if deny=403", "detail string: what to do", "violated-policies [string]: the rules that refused")
	check := []string{
		"domain string: required, except for a limit in the request", "attributes {string}: what rules match and count by: method, path, host, client_ip, header:NAME, query:NAME, cookie:NAME, jwt:CLAIM or any other name",
		"cost integer: 0 to 2^53-1, default 1; 0 is a dry run",
	}
	s.describe("Check", append(check, "peek boolean: checks without charging", "id string: instead of domain and attributes, for a limit in the request: what it counts by",
		"limit string|integer: such as 5/minute", "algorithm string: with limit: see algorithms", "burst string|integer: with limit, of buckets: how many at once", "refill_every string: with limit: tokens come in steps of this length", "delay_after string|integer: with limit, of leaky_bucket: how many are served at once", "anchor string: with limit, of fixed_window: clock or first_request",
		"timezone string: with limit: the zone that days and months are of", "buckets string|integer: with limit, of sliding_buckets: how many the window has", "edge string|boolean: with limit, of sliding_buckets: weighted, lenient or strict", "count_denied string|boolean: with limit: refused requests count too")...)
	s.describe("Checks", "checks! [Check]: up to 1000, decided one after the other")
	s.describe("Reserve", append(check, "ttl_ms integer: the time to settle it in, 1 to 86400000, default 600000")...)
	decision := []string{
		"allowed! boolean: whether the request may pass", "rule string: the rule that refused, or the tightest", "limit integer: the burst of a bucket, or the limit of a window",
		"remaining integer: what would pass now", "retry_after_ms integer|null: 0 if allowed; otherwise when the same request would pass; null means never",
		"reset_after_ms integer: time until the full limit is available", "action string: delay, shadow_ban or queue", "delay_ms integer: how long to hold the request",
		"reason! string: why: see reasons", "shadow [string]: rules in shadow mode that would have refused", "soft [string]: rules that mark the request",
	}
	s.describe("Decision", append(decision, "lease string: the slot taken under a concurrency rule", "report string: for POST /v1/report", "created_at string: of a peek: when the key was created, if the store records it", "changed_at string: of a peek: when the key last changed")...)
	s.describe("Reservation", append(decision, "reservation string: for commit and cancel, if allowed")...)
	s.describe("Decisions", "results! [Decision]: in the order of the checks")
	s.describe("Commit", "reservation! string: of the answer of POST /v1/reserve", "cost! integer: the real cost")
	s.describe("Cancel", "reservation! string: of the answer of POST /v1/reserve")
	s.describe("Lease", "lease! string: of the decision")
	s.describe("Report", "report! string: of the decision", "status integer: the status of the answer", "grpc string: its gRPC code, as a name or a number", "headers {string}: its header fields")
	settled := []string{"reason string: settled, expired or gone, if nothing was done", "in_debt boolean: the cost did not fit, and later requests wait for it", "rules_gone [string]: rules that no longer exist"}
	s.describe("Committed", append([]string{"committed! boolean: whether the cost was charged"}, settled...)...)
	s.describe("Cancelled", append([]string{"cancelled! boolean: whether the estimate was refunded"}, settled...)...)
	s.describe("Reported", append([]string{"reported! boolean: whether the answer was taken into account", "counted boolean: whether a rule counts the answer"}, settled...)...)
	s.describe("Released", "released! boolean: whether the slot was freed", "reason string: gone, if it was free already")
	s.describe("Renewed", "renewed! boolean: whether the slot is kept", "lease string: its new name", "reason string: gone, if it was free already")
	s.describe("Asked", "domain string: not needed if there is only one", "attributes {string}: of the caller, as in a check")
	s.describe("Explain", "domain string: not needed if there is only one", "attributes {string}: as in a check", "descriptors [Descriptor]: of Envoy, instead of attributes", "cost integer: as in a check", "rule string: the only rule to explain")
	s.describe("Descriptor", "entries! [Entry]: what it consists of, in order")
	s.describe("Entry", "key! string: a name", "value string: its value")
	s.describe("Ready", "ready! boolean: whether it can serve", "draining! boolean: whether it is about to stop", "store! string: ok, or what is wrong", "rules! RulesState: the rules, and how often they were read")
	s.goType(of[door.RulesState]())
	s.describe("QueuedRequest", "id! string: its id", "state! string: pending, delivered or dead (given up)", "accepted_at! string: when it was queued", "attempts! integer: how often it was sent", "next_attempt_at string: when it is sent again", "delivered_at string: when the backend took it", "given_up_at string: when it was given up", "response QueuedResponse: what the backend answered")
	s.describe("QueuedResponse", "status! integer: the status of the answer", "content_type string: its Content-Type", "body string: its body, if that is UTF-8", "body_base64 string: its body, if that is not", "truncated boolean: the body was longer")
	s.describe("RateLimitRequest", "domain! string: the domain of the rules", "descriptors! [Descriptor]: each is decided by itself", "hitsAddend integer: the cost, default 1")
	s.describe("RateLimitResponse", "overallCode! string: OK or OVER_LIMIT", "statuses [RateLimitStatus]: one for each descriptor", "responseHeadersToAdd [Entry]: header fields for the answer", "rawBody string: the body of a refusal, in base64")
	s.describe("RateLimitStatus", "code! string: OK or OVER_LIMIT", "currentLimit object: with name, requestsPerUnit and unit", "limitRemaining integer: what would pass now", "durationUntilReset string: such as 12s")
	s.describe("RuleList", "rules! [RuleStatus]: in the order of the files", "lists [ListStatus]: allow and deny lists")
	s.goType(of[admin.RuleStatus]())
	s.goType(of[admin.ListStatus]())
	s.describe("BlockList", "rules! [RuleBlocks]: those with sync: blocks")
	s.goType(of[admin.RuleBlocks]())
	s.describe("LogLevel", "level! string: debug, info, warn or error")
	s.describe("AuditList", "audit! [AuditEntry]: the newest first")
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
			[]parameter{{"domain", "not needed if there is only one"}, {"deny", "403 instead of 429 for refusals"}, {"cost", "0 to 2^53-1, default 1"}},
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
			[]parameter{{"domain", "only this one"}, {"rule", "only this one"}, {"outcome", "only this one, such as refused"}, {"key", "only this one"}, {"sample", "the share of them, above 0 and at most 1"}},
			nil,
			[]reply{{200, "text/event-stream", false}, wrong, busy},
			[]try{{"", "", 200}, {"?sample=2", "", 400}},
		},
		{
			"admin", "get", "/v1/top", "The busiest or most refused keys",
			[]parameter{{"domain", "only this one"}, {"rule", "only this one"}, {"by", "refused or active"}, {"n", "how many keys of a rule"}},
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
		{"admin", "get", "/v1/overrides", "Bans and overrides", []parameter{{"domain", "only this one"}, {"rule", "only this one"}, {"n", "how many"}}, nil, []reply{{200, of[admin.Overrides](), false}, wrong}, []try{{"", "", 200}, {"?n=x", "", 400}}},
		{"admin", "get", "/v1/audit", "The last changes of operators", []parameter{{"n", "how many"}}, nil, []reply{{200, "AuditList", false}, wrong}, []try{{"", "", 200}, {"?n=x", "", 400}}},
		{"admin", "get", "/v1/queue", "The queues", nil, nil, []reply{{200, of[admin.QueueList](), false}, wrong, busy}, []try{{"", "", 200}, {"?x", "", 400}}},
		{"admin", "get", "/v1/queue/items", "Queued requests", []parameter{{"state", "pending or dead"}, {"domain", "only this one"}, {"rule", "only this one"}, {"n", "how many"}}, nil, []reply{{200, of[admin.QueueItems](), false}, wrong, {404, problem, true}, busy}, []try{{"", "", 200}, {"?n=x", "", 400}}},
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

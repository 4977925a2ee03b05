// Package rulefiles has the rules of Headgate's server in a Go program: the same
// files, read by the same parser, decided by the same engine, and answered with the
// same header fields and bodies. A service that wants no proxy in front of it, or
// wants to ask where it knows more than a URL, needs no second way to write limits.
//
//	rules, err := rulefiles.Open(memory.New(), []string{"rules.yaml"})
//	if err != nil {
//		return err // every mistake, with file:line:column
//	}
//	defer rules.Close()
//	http.ListenAndServe(":8080", rules.Middleware(mux))
//
// # What holds
//
//   - Files are followed. Once they have changed and are quiet, they are read again;
//     requests in progress go on with the rules that they began with. Files with a
//     mistake, or none at all any more, leave the old rules in force, and the logger
//     of [WithLogger] is told which mistake, where.
//   - A request is charged to all limits that apply to it, or to none.
//   - If the store cannot answer, each rule says what holds (on_store_error), and
//     the error comes with the verdict. It is never a reason for the caller to refuse.
//   - Processes that share a store and rules count together, servers of Headgate too.
//
// # What is not there
//
// Nobody verifies tokens, so that no request has claims: a rule by jwt:… is a
// warning in the log, but DecideAttributes may be told of them. A rule with
// on_limit: queue refuses. A rule with cost_after charges its estimate. Rules with
// concurrency hold in [Rules.Middleware] alone, as the other callers do not tell when a
// request has ended. Bans and overrides of single keys are those of a server.
package rulefiles

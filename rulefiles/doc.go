// Package rulefiles applies the rules of a Headgate server inside a Go program: the
// same files, parser and engine, and the same header fields and bodies. Use it for a
// service without a proxy in front, or to limit things that are not HTTP requests.
//
//	rules, err := rulefiles.Open(memory.New(), []string{"rules.yaml"})
//	if err != nil {
//		return err // every mistake, with file:line:column
//	}
//	defer rules.Close()
//	http.ListenAndServe(":8080", rules.Middleware(mux))
//
// # Guarantees
//
//   - Files are followed and read again when they change. Requests in progress keep
//     the rules that they started with. If the new files have a mistake, or there are
//     none, the old rules stay active and the error is logged ([WithLogger]).
//   - A request is charged to all limits that apply to it, or to none.
//   - If the store cannot answer, the on_store_error of each rule applies. The error is
//     returned next to the verdict and is not a reason to refuse.
//   - Processes and servers that share a store and rules share their counts.
//
// # Differences from a server
//
// Tokens are not verified: a rule that counts by jwt:… logs a warning, but
// DecideAttributes accepts such attributes. on_limit: queue refuses. Rules
// with concurrency only apply in [Rules.Middleware], since nothing else says when a request
// ends. Rules with charge_on count the answer there, and every request in Decide and
// DecideAttributes; a cost from_response is charged there, and elsewhere its estimate. There
// are no bans or overrides by operators. Bans by on_repeat take effect in each process that shares the store after its
// first refusal of the key; they are logged without the key, and nobody can end them early.
package rulefiles

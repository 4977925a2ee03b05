// Package resp is the door for clients of Redis: CL.THROTTLE answers as
// redis-cell does, HG.CHECK asks the rules, and what client libraries say to a
// server on their own (HELLO, AUTH, CLIENT, COMMAND …) is answered as Redis
// answers it.
//
// It speaks RESP2 and RESP3, in binary and in lines, and any number of commands
// may be under way. The contract is in docs/redis-protocol.md; why the server
// is our own in docs/decisions.
package resp

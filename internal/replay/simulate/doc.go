// Package simulate replays access logs against rules on virtual time: a door
// whose clock is the log. It says what rules would have done to the traffic of
// yesterday, compares two sets of rules, and proposes limits.
package simulate

package resp

import (
	"context"
	"strings"

	"github.com/headgate/headgate/store"
)

// command is a command that clients can call.
type command struct {
	name  string // in lower case; for a subcommand without the parent's name
	arity int    // the number of arguments, with the name; -n means at least n
	run   func(c *conn, ctx context.Context)
	early bool // allowed before AUTH
	// decides: the engine decides it. gathers: it may be collected, to be decided
	// together with the commands that arrived with it.
	decides, gathers bool
	subs             []*command
}

func (m *command) upper() string { return strings.ToUpper(m.name) }

// takes reports whether m accepts n arguments.
func (m *command) takes(n int) bool {
	return n == m.arity || m.arity < 0 && n >= -m.arity
}

// table returns all commands.
func table() []*command {
	list := []*command{
		{name: "cl.throttle", arity: -1, run: (*conn).throttle},
		{name: "hg.check", arity: -2, decides: true, gathers: true, run: func(c *conn, ctx context.Context) { c.checkOne(ctx, store.KindTake) }},
		{name: "hg.peek", arity: -2, decides: true, gathers: true, run: func(c *conn, ctx context.Context) { c.checkOne(ctx, store.KindPeek) }},
		{name: "hg.mcheck", arity: -3, decides: true, run: (*conn).checkMany},
	}
	list = append(list, sessionCommands()...)
	return append(list, clientCommand())
}

// dispatch answers the command that the parser has completed.
func (c *conn) dispatch(ctx context.Context) {
	name := c.arg(0)
	// Nearly all commands are CL.THROTTLE: recognize it without the table.
	if len(name) == len("cl.throttle") && c.authed && isThrottle(name) {
		if c.busy() {
			c.settle(ctx)
			c.fail(overloaded)
			return
		}
		c.throttle(ctx)
		return
	}
	m := c.server.find(name)
	if m == nil || !m.gathers || len(c.batch.ops) > 0 {
		c.settle(ctx)
	}
	switch {
	case m == nil && isHTTP(name):
		// A browser may have been tricked into sending a form here with commands
		// in its body: ignore the rest.
		c.closing = true
		c.server.stats.misled.Add(1)
		if f := c.server.options.Misled; f != nil {
			f(c.net.RemoteAddr())
		}
	case m == nil:
		c.fail(c.unknown())
	case !m.takes(len(c.parser.args)):
		c.refuse(ctx, "ERR wrong number of arguments for '"+m.name+"' command")
	case !c.authed && !m.early:
		c.refuse(ctx, "NOAUTH Authentication required.")
	case m.decides && c.busy():
		c.refuse(ctx, overloaded)
	case m.subs != nil && len(c.parser.args) > 1:
		c.dispatchSub(ctx, m)
	default:
		m.run(c, ctx)
	}
}

// overloaded is the answer when memory is short. Redis clients treat BUSY as a
// temporary error.
const overloaded = "BUSY overloaded, this server is short of memory"

// busy reports whether commands that decide must be refused.
func (c *conn) busy() bool {
	busy := c.server.options.Busy
	return busy != nil && busy()
}

func (c *conn) dispatchSub(ctx context.Context, m *command) {
	name := c.arg(1)
	for _, sub := range m.subs {
		switch {
		case !folded(name, sub.name):
		case !sub.takes(len(c.parser.args)):
			c.fail("ERR wrong number of arguments for '" + m.name + "|" + sub.name + "' command")
			return
		default:
			sub.run(c, ctx)
			return
		}
	}
	c.fail("ERR unknown subcommand '" + clipped(name) + "'.")
}

// find returns the command with a name in any case, or nil.
func (s *Server) find(name []byte) *command {
	var upper [16]byte
	if len(name) > len(upper) {
		return nil
	}
	for i, ch := range name {
		if ch >= 'a' && ch <= 'z' {
			ch -= 'a' - 'A'
		}
		upper[i] = ch
	}
	return s.commands[string(upper[:len(name)])]
}

// folded reports whether text is name, ignoring case. name is lower case.
func folded(text []byte, name string) bool {
	if len(text) != len(name) {
		return false
	}
	for i, ch := range text {
		if ch >= 'A' && ch <= 'Z' {
			ch += 'a' - 'A'
		}
		if ch != name[i] {
			return false
		}
	}
	return true
}

func isThrottle(name []byte) bool {
	return string(name) == "CL.THROTTLE" || folded(name, "cl.throttle")
}

func isHTTP(name []byte) bool { return folded(name, "post") || folded(name, "host:") }

// unknown returns Redis's error for a command that does not exist.
func (c *conn) unknown() string {
	const most = 128
	var b strings.Builder
	b.WriteString("ERR unknown command '" + clipped(c.arg(0)) + "', with args beginning with: ")
	for i, left := 1, most; i < len(c.parser.args) && left > 0; i++ {
		arg := c.arg(i)
		arg = arg[:min(len(arg), left)]
		b.WriteByte('\'')
		b.Write(arg)
		b.WriteString("' ")
		left -= len(arg) + len("'' ")
	}
	return b.String()
}

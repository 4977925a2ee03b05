package resp

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
)

const (
	wrongPass  = "WRONGPASS invalid username-password pair or user is disabled."
	badName    = "ERR Client names cannot contain spaces, newlines or special characters."
	longName   = "ERR Client names can have at most 128 bytes"
	notInteger = "ERR value is not an integer or out of range"
	syntax     = "ERR syntax error"
	noPassword = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?" //nolint:gosec // a message, no password
	noHello    = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time"
)

// sessionCommands returns the commands that client libraries send on their own.
func sessionCommands() []*command {
	return []*command{
		{name: "ping", arity: -1, run: (*conn).ping},
		{name: "echo", arity: 2, run: func(c *conn, _ context.Context) { c.bulk(c.text(1)) }},
		{name: "hello", arity: -1, early: true, run: (*conn).hello},
		{name: "auth", arity: -2, early: true, run: (*conn).auth},
		{name: "select", arity: 2, run: (*conn).selectDatabase},
		{name: "info", arity: -1, run: (*conn).info},
		{name: "reset", arity: 1, early: true, run: (*conn).reset},
		{name: "quit", arity: -1, early: true, run: func(c *conn, _ context.Context) {
			c.ok()
			c.closing = true
		}},
		// Clients ask what commands there are, and manage without an answer.
		{name: "command", arity: -1, run: func(c *conn, _ context.Context) { c.array(0) }},
	}
}

func (c *conn) ping(context.Context) {
	switch len(c.parser.args) {
	case 1:
		c.simple("PONG")
	case 2:
		c.bulk(c.text(1))
	default:
		c.fail("ERR wrong number of arguments for 'ping' command")
	}
}

// auth answers AUTH [user] password. The only user is default.
func (c *conn) auth(context.Context) {
	switch len(c.parser.args) {
	case 2:
		if c.server.options.Password == "" {
			c.fail(noPassword)
			return
		}
		if !c.login([]byte(defaultUser), c.arg(1)) {
			c.fail(wrongPass)
			return
		}
	case 3:
		if !c.login(c.arg(1), c.arg(2)) {
			c.fail(wrongPass)
			return
		}
	default:
		c.fail(syntax)
		return
	}
	c.ok()
}

const defaultUser = "default"

// maxWrong is how many wrong passwords close a connection.
const maxWrong = 10

// login reports whether user and password are right. It takes the same time whichever
// byte is wrong. Passwords are compared by hash, so the time does not reveal the length.
func (c *conn) login(user, password []byte) bool {
	sum := sha256.Sum256(password)
	right := subtle.ConstantTimeCompare(user, []byte(defaultUser))
	if c.server.options.Password != "" {
		right &= subtle.ConstantTimeCompare(sum[:], c.server.password[:])
	}
	if right == 1 {
		c.authed, c.parser.unauthenticated = true, false
		return true
	}
	if c.server.options.Password == "" {
		return false // no password is set, so this is no guess
	}
	c.server.options.Failures.Note(c.net.RemoteAddr().String())
	if c.wrong++; c.wrong >= maxWrong {
		c.closing = true // it is guessing
	}
	return false
}

// hello answers HELLO [version [AUTH user password] [SETNAME name]]. After an error
// nothing has changed, except that a correct password still counts.
func (c *conn) hello(context.Context) {
	proto := c.proto
	n := len(c.parser.args)
	if n > 1 {
		v, ok := integer(c.arg(1))
		switch {
		case !ok:
			c.fail("ERR Protocol version is not an integer or out of range")
			return
		case v != int64(resp2) && v != int64(resp3):
			c.fail("NOPROTO unsupported protocol version")
			return
		}
		proto = protocol(v)
	}
	name := -1
	for i := 2; i < n; i++ {
		switch {
		case folded(c.arg(i), "auth") && i+2 < n:
			if !c.login(c.arg(i+1), c.arg(i+2)) {
				c.fail(wrongPass)
				return
			}
			i += 2
		case folded(c.arg(i), "setname") && i+1 < n:
			i++
			name = i
			if complaint := nameComplaint(c.arg(i)); complaint != "" {
				c.fail(complaint)
				return
			}
		default:
			c.fail("ERR Syntax error in HELLO option '" + clipped(c.arg(i)) + "'")
			return
		}
	}
	if !c.authed {
		c.fail(noHello)
		return
	}
	if name >= 0 {
		c.name = c.text(name)
	}
	c.proto = proto
	c.greet()
}

// greet appends HELLO's answer: the server, its version and the protocol in use.
func (c *conn) greet() {
	c.mapping(7)
	c.bulk("server")
	c.bulk("headgate")
	c.bulk("version")
	c.bulk(c.server.options.Version)
	c.bulk("proto")
	c.integer(int64(c.proto))
	c.bulk("id")
	c.integer(c.id)
	c.bulk("mode")
	c.bulk("standalone")
	c.bulk("role")
	c.bulk("master")
	c.bulk("modules")
	c.array(0)
}

func (c *conn) selectDatabase(context.Context) {
	n, ok := integer(c.arg(1))
	switch {
	case !ok:
		c.fail(notInteger)
	case n != 0:
		c.fail("ERR DB index is out of range")
	default:
		c.ok()
	}
}

func (c *conn) reset(context.Context) {
	c.proto, c.name = resp2, ""
	if c.server.options.Password != "" {
		c.authed, c.parser.unauthenticated = false, true
		c.first = c.server.clock.Now()
	}
	c.simple("RESET")
}

// info answers INFO with all sections, whichever were requested. Clients check loading
// before they use a server.
func (c *conn) info(context.Context) {
	s := c.server.Stats()
	c.lines(fmt.Sprintf("# Server\r\nserver_name:headgate\r\nheadgate_version:%s\r\nredis_version:%s\r\nredis_mode:standalone\r\n\r\n"+
		"# Clients\r\nconnected_clients:%d\r\nmaxclients:%d\r\n\r\n"+
		"# Persistence\r\nloading:0\r\n\r\n"+
		"# Stats\r\ntotal_connections_received:%d\r\ntotal_commands_processed:%d\r\nrejected_connections:%d\r\nthrottle_allowed:%d\r\nthrottle_refused:%d\r\n\r\n"+
		"# Replication\r\nrole:master\r\nconnected_slaves:0\r\n",
		c.server.options.Version, compatible, s.Connections, c.server.options.MaxConnections,
		s.Accepted, s.Commands, s.Rejected, s.ThrottleAllowed, s.ThrottleRefused))
}

// compatible is the Redis version that clients see and that this server behaves like.
const compatible = "7.4.0"

// maxName limits the length of a client's name, which is kept as long as the connection.
const maxName = 128

// nameComplaint returns the error for an invalid client name, or "".
func nameComplaint(name []byte) string {
	if len(name) > maxName {
		return longName
	}
	for _, ch := range name {
		if ch <= ' ' || ch > '~' {
			return badName
		}
	}
	return ""
}

// clientCommand returns CLIENT.
func clientCommand() *command {
	return &command{
		name: "client", arity: -2,
		run: func(*conn, context.Context) {}, // there is always a subcommand
		subs: []*command{
			{name: "id", arity: 2, run: func(c *conn, _ context.Context) { c.integer(c.id) }},
			{name: "getname", arity: 2, run: (*conn).clientName},
			{name: "setname", arity: 3, run: func(c *conn, _ context.Context) {
				if complaint := nameComplaint(c.arg(2)); complaint != "" {
					c.fail(complaint)
					return
				}
				c.name = c.text(2)
				c.ok()
			}},
			{name: "setinfo", arity: 4, run: func(c *conn, _ context.Context) { // nobody reads it
				if of := c.arg(2); !folded(of, "lib-name") && !folded(of, "lib-ver") {
					c.fail("ERR Unrecognized option '" + clipped(of) + "'")
					return
				}
				c.ok()
			}},
			{name: "no-evict", arity: 3, run: (*conn).clientSwitch},
			{name: "no-touch", arity: 3, run: (*conn).clientSwitch},
			// No value that clients can read ever changes, so there are no
			// invalidations to send.
			{name: "tracking", arity: -3, run: (*conn).clientSwitch},
		},
	}
}

func (c *conn) clientName(context.Context) {
	if c.name == "" {
		c.null()
		return
	}
	c.bulk(c.name)
}

func (c *conn) clientSwitch(context.Context) {
	if !folded(c.arg(2), "on") && !folded(c.arg(2), "off") {
		c.fail(syntax)
		return
	}
	c.ok()
}

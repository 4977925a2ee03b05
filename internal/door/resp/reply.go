package resp

import "strconv"

// protocol is the protocol version of a connection.
type protocol uint8

// The versions. A connection starts with resp2; HELLO changes it.
const (
	resp2 protocol = 2
	resp3 protocol = 3
)

// reply appends answers to the output. In RESP2 a map is an array of names and values,
// and true and false are 1 and 0.
type reply struct {
	out   []byte
	proto protocol
}

func (r *reply) head(kind byte, n int64) {
	r.out = append(r.out, kind)
	r.out = strconv.AppendInt(r.out, n, 10)
	r.out = append(r.out, '\r', '\n')
}

func (r *reply) simple(text string) {
	r.out = append(r.out, '+')
	r.out = append(r.out, text...)
	r.out = append(r.out, '\r', '\n')
}

func (r *reply) ok() { r.simple("OK") }

// fail appends an error. Its first word is its kind, for clients.
func (r *reply) fail(message string) {
	r.out = append(r.out, '-')
	for i := range len(message) {
		c := message[i]
		if c == '\r' || c == '\n' { // quoted client input must not end the line
			c = ' '
		}
		r.out = append(r.out, c)
	}
	r.out = append(r.out, '\r', '\n')
}

func (r *reply) integer(n int64) { r.head(':', n) }

func (r *reply) bulk(text string) {
	r.head('$', int64(len(text)))
	r.out = append(r.out, text...)
	r.out = append(r.out, '\r', '\n')
}

// lines appends text for people to read.
func (r *reply) lines(lines string) {
	if r.proto == resp2 {
		r.bulk(lines)
		return
	}
	r.head('=', int64(len(lines)+4))
	r.out = append(r.out, "txt:"...)
	r.out = append(r.out, lines...)
	r.out = append(r.out, '\r', '\n')
}

func (r *reply) array(n int) { r.head('*', int64(n)) }

// mapping starts n pairs of name and value.
func (r *reply) mapping(n int) {
	if r.proto == resp2 {
		r.array(2 * n)
		return
	}
	r.head('%', int64(n))
}

func (r *reply) null() {
	if r.proto == resp2 {
		r.out = append(r.out, "$-1\r\n"...)
		return
	}
	r.out = append(r.out, "_\r\n"...)
}

package accesslog

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
)

// compileText reads a format as it stands in a server's configuration: nginx's
// log_format, Apache's LogFormat or Envoy's text format.
func compileText(name, text string) (*template, error) {
	text = strings.TrimSuffix(text, "\n")
	switch {
	case strings.Contains(text, "$"):
		return compileNginx(name, text)
	case envoyVariable(text):
		return compileEnvoy(name, text)
	case strings.Contains(text, "%"):
		return compileApache(name, text)
	}
	return nil, fmt.Errorf("the format %q has no values in it, such as $remote_addr (nginx), %%h (Apache) or %%START_TIME%% (Envoy)", clip.Text(text, 60))
}

// envoyVariable reports whether text has something like %START_TIME% in it.
func envoyVariable(text string) bool {
	for {
		_, after, found := strings.Cut(text, "%")
		if !found {
			return false
		}
		n := 0
		for n < len(after) && (after[n] >= 'A' && after[n] <= 'Z' || after[n] == '_') {
			n++
		}
		if n > 2 && n < len(after) && (after[n] == '%' || after[n] == '(') {
			return true
		}
		text = after
	}
}

// builder collects the texts and values of a format.
type builder struct {
	texts  []string
	places []place
}

func (b *builder) text(s string) {
	if s == "" {
		return
	}
	b.open()
	b.texts[len(b.texts)-1] += s
}

// open makes sure that there is a text behind the last value.
func (b *builder) open() {
	if len(b.texts) == len(b.places) {
		b.texts = append(b.texts, "")
	}
}

// compile makes the format.
func (b *builder) compile(name string, logged whenLogged) (*template, error) {
	b.open()
	return compile(name, b.texts, b.places, logged)
}

// place adds a value. What is often written without anything between, such as
// %U%q, $uri$is_args$args and $host$request_uri, is a single one.
func (b *builder) place(p place) {
	p = p.canonical()
	if n := len(b.places); n > 0 && len(b.texts) == n {
		switch last := &b.places[n-1]; {
		case (last.slot == uri || last.slot == uriQuery) && (p.slot == query || p.name == "is_args"):
			last.slot = uriQuery
			return
		case last.slot == host && p.slot == target:
			last.slot = hosted
			return
		}
	}
	b.open()
	b.places = append(b.places, p)
}

// nginxNames are nginx's variables that say something of a request; others
// may stand in a format, and are passed over.
func nginxNames() map[string]slot {
	return map[string]slot{
		"remote_addr": client, "realip_remote_addr": skip, "time_local": timeLocal, "time_iso8601": timeISO, "msec": timeEpoch,
		"request": request, "request_method": method, "request_uri": target, "uri": uri, "document_uri": uri,
		"args": query, "query_string": query, "host": host, "status": status, "request_time": seconds,
		"body_bytes_sent": number, "bytes_sent": number,
		"proxy_add_x_forwarded_for": skip,
		// The last is what auth_request_set makes of it in our examples.
		"upstream_http_x_headgate_time": timeDecided, "sent_http_x_headgate_time": timeDecided, "headgate_time": timeDecided,
	}
}

// nginxPlace returns where a variable's value goes.
func nginxPlace(name string) place {
	if slot, ok := nginxNames()[name]; ok {
		return place{slot: slot}
	}
	for _, prefix := range []struct {
		text string
		slot slot
	}{{"http_", header}, {"cookie_", cookie}, {"arg_", argument}} {
		if rest, ok := strings.CutPrefix(name, prefix.text); ok && rest != "" {
			if prefix.slot == header {
				rest = strings.ReplaceAll(rest, "_", "-")
			}
			return place{slot: prefix.slot, name: rest}
		}
	}
	switch {
	case strings.HasPrefix(name, "upstream_"), strings.HasPrefix(name, "sent_"), strings.HasPrefix(name, "ssl_"):
		return place{}
	}
	return place{slot: other, name: name} // set by the user, perhaps what a rule counts by
}

func compileNginx(name, text string) (*template, error) {
	var b builder
	for {
		before, after, found := strings.Cut(text, "$")
		b.text(before)
		if !found {
			break
		}
		variable := ""
		if strings.HasPrefix(after, "{") {
			inside, rest, closed := strings.Cut(after[1:], "}")
			if !closed {
				return nil, fmt.Errorf("the format has ${ without a }")
			}
			variable, text = inside, rest
		} else {
			n := 0
			for n < len(after) && isWord(after[n]) {
				n++
			}
			variable, text = after[:n], after[n:]
		}
		if variable == "" {
			return nil, fmt.Errorf("the format has a $ without a name after it")
		}
		b.place(nginxPlace(variable))
	}
	// nginx writes a line when the answer has been sent.
	b.places = prefer(b.places, preciseTimes())
	return b.compile(name, logsEnd)
}

func isWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// decidedField is the header field that tells when Headgate decided, to the
// microsecond.
const decidedField = "X-Headgate-Time"

// preciseTimes lists times, the best first.
func preciseTimes() []slot { return []slot{timeDecided, timeEpoch, timeISO, timeAny, timeLocal} }

// prefer keeps only the first of the slots that is there, since lines may have
// the same several times.
func prefer(places []place, order []slot) []place {
	for at, best := range order {
		for i := range places {
			if places[i].slot != best {
				continue
			}
			for j := range places {
				for _, worse := range order[at:] {
					if j != i && places[j].slot == worse {
						places[j] = place{}
					}
				}
			}
			return places
		}
	}
	return places
}

// compileApache reads a LogFormat. Modifiers such as %>s and %!200{…}i are
// read over.
func compileApache(name, text string) (*template, error) {
	var b builder
	logged := logsStart // %t is when the request came
	text = strings.NewReplacer(`\"`, `"`, `\t`, "\t", `\\`, `\`).Replace(text)
	for {
		before, after, found := strings.Cut(text, "%")
		b.text(before)
		if !found {
			break
		}
		if strings.HasPrefix(after, "%") {
			b.text("%")
			text = after[1:]
			continue
		}
		after = strings.TrimLeft(after, "<>!,0123456789")
		argument := ""
		if strings.HasPrefix(after, "{") {
			inside, rest, closed := strings.Cut(after[1:], "}")
			if !closed {
				return nil, fmt.Errorf("the format has %%{ without a }")
			}
			argument, after = inside, strings.TrimLeft(rest, "<>")
		}
		if after == "" {
			return nil, fmt.Errorf("the format ends in %%")
		}
		letter := after[:1]
		text = after[1:]
		if letter == "^" && len(after) >= 3 { // ^ti and ^to, trailers
			letter, text = after[:3], after[3:]
		}
		p := apachePlace(letter, argument)
		if p.slot == timeLocal && argument == "" {
			b.text("[")
			b.place(p)
			b.text("]")
			continue
		}
		if strings.HasPrefix(argument, "end:") {
			logged = logsEnd
		}
		b.place(p)
	}
	return b.compile(name, logged)
}

// apachePlace returns where a directive's value goes.
func apachePlace(letter, argument string) place {
	if letter == "t" {
		return place{slot: apacheTime(argument)}
	}
	if argument != "" {
		switch letter {
		case "i":
			return place{slot: header, name: argument}
		case "C":
			return place{slot: cookie, name: argument}
		case "e", "n":
			return place{slot: other, name: argument}
		case "o":
			if strings.EqualFold(argument, decidedField) {
				return place{slot: timeDecided}
			}
		case "T":
			return place{slot: map[string]slot{"ms": millis, "us": micros, "s": seconds}[argument]}
		}
	}
	slots := map[string]slot{
		"a": client, "h": client, "r": request, "m": method, "U": uri, "q": query, "v": host, "V": host,
		"s": status, "D": micros, "T": seconds, "b": number, "B": number,
	}
	if letter == "h" || letter == "a" {
		if argument != "" { // {c}a is the peer behind mod_remoteip
			return place{}
		}
	}
	return place{slot: slots[letter]}
}

// apacheTime returns how the argument of %{…}t is written.
func apacheTime(argument string) slot {
	argument = strings.TrimPrefix(strings.TrimPrefix(argument, "begin:"), "end:")
	switch argument {
	case "", "%d/%b/%Y:%H:%M:%S %z", "%d/%b/%Y:%T %z":
		return timeLocal
	case "sec", "msec", "usec":
		return timeEpoch
	case "msec_frac", "usec_frac":
		return skip
	}
	return timeAny
}

// compileEnvoy reads Envoy's command operators.
func compileEnvoy(name, text string) (*template, error) {
	var b builder
	for {
		before, after, found := strings.Cut(text, "%")
		b.text(before)
		if !found {
			break
		}
		if strings.HasPrefix(after, "%") {
			b.text("%")
			text = after[1:]
			continue
		}
		rest, argument := "", ""
		n := 0
		for n < len(after) && (after[n] == '_' || after[n] >= 'A' && after[n] <= 'Z' || after[n] >= '0' && after[n] <= '9') {
			n++
		}
		operator := after[:n]
		rest = after[n:]
		if strings.HasPrefix(rest, "(") {
			closed := strings.Index(rest, ")")
			if closed < 0 {
				return nil, fmt.Errorf("%%%s( has no ) after it", operator)
			}
			argument, rest = rest[1:closed], rest[closed+1:]
		}
		end := strings.IndexByte(rest, '%') // a maximal length, :12, may stand before it
		if end < 0 {
			return nil, fmt.Errorf("%%%s has no %% after it", operator)
		}
		text = rest[end+1:]
		b.place(envoyPlace(operator, argument))
	}
	hasPeer := false
	for _, p := range b.places {
		hasPeer = hasPeer || p.slot == client
	}
	for i := range b.places {
		// Envoy has appended the peer to the header before it logs it.
		if p := &b.places[i]; !hasPeer && p.slot == forwarded {
			p.slot = forwardedLast
		}
	}
	return b.compile(name, logsStart)
}

// envoyPlace returns where an operator's value goes.
func envoyPlace(operator, argument string) place {
	switch operator {
	case "START_TIME":
		return place{slot: timeAny}
	case "RESPONSE_CODE":
		return place{slot: status}
	case "DOWNSTREAM_REMOTE_ADDRESS", "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
		"DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT":
		return place{slot: client}
	case "BYTES_RECEIVED", "BYTES_SENT":
		return place{slot: number}
	case "RESP":
		if strings.EqualFold(argument, decidedField) {
			return place{slot: timeDecided}
		}
	case "REQ":
		first, _, _ := strings.Cut(argument, "?")
		switch strings.ToUpper(first) {
		case ":METHOD":
			return place{slot: method}
		case ":PATH", "X-ENVOY-ORIGINAL-PATH":
			return place{slot: target}
		case ":AUTHORITY":
			return place{slot: host}
		}
		return place{slot: header, name: first}.canonical()
	}
	return place{}
}

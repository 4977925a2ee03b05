package accesslog

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/base/clip"
)

// compileText compiles a format string: an nginx log_format, an Apache LogFormat
// or an Envoy text format.
func compileText(name, text string) (*template, error) {
	text = strings.TrimSuffix(text, "\n")
	switch {
	case strings.Contains(text, "$"):
		return compileNginx(name, text)
	case regexp.MustCompile(`%[A-Z_]{3,}[%(]`).MatchString(text): // such as %START_TIME%
		return compileEnvoy(name, text)
	case strings.Contains(text, "%"):
		return compileApache(name, text)
	}
	return nil, fmt.Errorf("the format %q has no values such as $remote_addr (nginx), %%h (Apache) or %%START_TIME%% (Envoy)", clip.Text(text, 60))
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

// read splits a format into texts and directives. take gets the submatches of each
// directive.
func (b *builder) read(text, directive string, take func(parts []string) error) error {
	d := regexp.MustCompile(directive)
	between := d.Split(text, -1)
	for i, parts := range d.FindAllStringSubmatch(text, -1) {
		b.text(between[i])
		if err := take(parts); err != nil {
			return err
		}
	}
	b.text(between[len(between)-1])
	return nil
}

// open ensures that the last value is followed by a text.
func (b *builder) open() {
	if len(b.texts) == len(b.places) {
		b.texts = append(b.texts, "")
	}
}

// compile returns the format.
func (b *builder) compile(name string, logged whenLogged) (*template, error) {
	b.open()
	return compile(name, b.texts, b.places, logged)
}

// place adds a value. Values that are often written without a separator, such as
// %U%q, $uri$is_args$args and $host$request_uri, become a single one.
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

// nginxNames are the nginx variables that describe a request; others are ignored.
func nginxNames() map[string]slot {
	return map[string]slot{
		"remote_addr": client, "realip_remote_addr": skip, "time_local": timeLocal, "time_iso8601": timeISO, "msec": timeEpoch,
		"request": request, "request_method": method, "request_uri": target, "uri": uri, "document_uri": uri,
		"args": query, "query_string": query, "host": host, "status": status, "request_time": seconds,
		"body_bytes_sent": number, "bytes_sent": number,
		"proxy_add_x_forwarded_for": skip,
		// The last is set by auth_request_set in our examples.
		"upstream_http_x_headgate_time": timeDecided, "sent_http_x_headgate_time": timeDecided, "headgate_time": timeDecided,
	}
}

// nginxPlace returns the place of a variable.
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
	return place{slot: other, name: name} // set by the user, perhaps part of a key
}

func compileNginx(name, text string) (*template, error) {
	var b builder
	err := b.read(text, `\$(?:\{([^}]*)\}|(\{)|(\w*))`, func(parts []string) error {
		variable := parts[1] + parts[3]
		switch {
		case parts[2] != "":
			return errors.New("the format has ${ without a }")
		case variable == "":
			return errors.New("the format has a $ without a name after it")
		}
		b.place(nginxPlace(variable))
		return nil
	})
	if err != nil {
		return nil, err
	}
	// nginx logs a request after the response.
	b.places = prefer(b.places, preciseTimes())
	return b.compile(name, logsEnd)
}

// decidedField is the header field with the time of the decision, in
// microseconds.
const decidedField = "X-Headgate-Time"

// preciseTimes lists times, the best first.
func preciseTimes() []slot { return []slot{timeDecided, timeEpoch, timeISO, timeAny, timeLocal} }

// prefer keeps only the first slot that the format has, since a line may have
// equivalent values.
func prefer(places []place, order []slot) []place {
	rank := func(p place) int { return slices.Index(order, p.slot) }
	best := -1
	for i, p := range places {
		if rank(p) >= 0 && (best < 0 || rank(p) < rank(places[best])) {
			best = i
		}
	}
	for i, p := range places {
		if i != best && rank(p) >= 0 {
			places[i] = place{}
		}
	}
	return places
}

// compileApache compiles a LogFormat. Modifiers such as %>s and %!200{…}i are
// ignored.
func compileApache(name, text string) (*template, error) {
	var b builder
	logged := logsStart // %t is the arrival of the request
	text = strings.NewReplacer(`\"`, `"`, `\t`, "\t", `\\`, `\`).Replace(text)
	err := b.read(text, `(?s)%(?:(%)|[<>!,0-9]*(?:\{([^}]*)\}[<>]*|(\{))?(\^..|.)?)`, func(parts []string) error {
		argument, letter := parts[2], parts[4] // or ^ti and ^to, trailers
		switch {
		case parts[1] != "":
			b.text("%")
			return nil
		case parts[3] != "":
			return errors.New("the format has %{ without a }")
		case letter == "":
			return errors.New("the format ends in %")
		}
		p := apachePlace(letter, argument)
		if p.slot == timeLocal && argument == "" {
			b.text("[")
			b.place(p)
			b.text("]")
			return nil
		}
		if strings.HasPrefix(argument, "end:") {
			logged = logsEnd
		}
		b.place(p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b.compile(name, logged)
}

// apachePlace returns the place of a directive.
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
	if (letter == "h" || letter == "a") && argument != "" { // {c}a is the peer behind mod_remoteip
		return place{}
	}
	return place{slot: slots[letter]}
}

// apacheTime returns the slot for the argument of %{…}t.
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

// compileEnvoy compiles Envoy command operators.
func compileEnvoy(name, text string) (*template, error) {
	var b builder
	// A maximal length, :12, may precede the second %.
	err := b.read(text, `%(?:(%)|([A-Z0-9_]*)(?:(\()([^)]*)(\))?)?[^%]*(%)?)`, func(parts []string) error {
		switch operator := parts[2]; {
		case parts[1] != "":
			b.text("%")
		case parts[3] != "" && parts[5] == "":
			return fmt.Errorf("%%%s( has no ) after it", operator)
		case parts[6] == "":
			return fmt.Errorf("%%%s has no %% after it", operator)
		default:
			b.place(envoyPlace(operator, parts[4]))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	hasPeer := slices.ContainsFunc(b.places, func(p place) bool { return p.slot == client })
	for i := range b.places {
		// Envoy appends the peer to the header before logging it.
		if p := &b.places[i]; !hasPeer && p.slot == forwarded {
			p.slot = forwardedLast
		}
	}
	return b.compile(name, logsStart)
}

// envoyPlace returns the place of an operator.
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

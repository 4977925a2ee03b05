package redis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ParseURL parses a URL into Options:
//
//	redis://user:password@host:6379/0
//	redis+sentinel://user:password@host1:26379,host2:26379/mymaster/0
//	redis+cluster://user:password@host1:6379,host2:6379
//
// The scheme may also start with valkey; rediss and valkeys use TLS. The parameters are
// prefix, timeout (such as 100ms), strict_atomic, sentinel_username, sentinel_password
// and insecure_skip_verify; others are errors. Errors never contain the password.
func ParseURL(text string) (Options, error) {
	if cutsPassword(text) { // the errors below would quote a part of it
		return Options{}, errors.New("redis: @ after the first /, ? or #: in a user name or password, write these as %2F, %3F and %23")
	}
	text, list := cutHosts(text)
	u, err := url.Parse(text)
	if err != nil {
		// The error of package url repeats the text, password included.
		if err := rawCharacter(text); err != nil {
			return Options{}, err
		}
		return Options{}, errors.New("redis: not a URL: want redis://host:port, redis+sentinel://… or redis+cluster://…")
	}
	o, err := schemeOptions(u.Scheme)
	if err != nil {
		return Options{}, err
	}
	switch {
	case u.Opaque != "":
		return Options{}, fmt.Errorf("redis: two slashes are missing: write %s://host:port", u.Scheme)
	case u.Fragment != "":
		return Options{}, errors.New("redis: a URL has no part after #: write # in a password as %23")
	}
	if u.User != nil {
		o.Username = u.User.Username()
		o.Password, _ = u.User.Password()
	}
	port := "6379"
	if o.Mode == Sentinel {
		port = "26379"
	}
	if o.Addresses, err = hosts(list, port); err != nil {
		return Options{}, err
	}
	if err := o.setPath(u.Path); err != nil {
		return Options{}, err
	}
	if err := o.setQuery(u.RawQuery); err != nil {
		return Options{}, err
	}
	return o, o.validate()
}

// cutsPassword reports whether the part before an @ contains characters that end it. An
// @ in the value of a parameter does not count.
func cutsPassword(text string) bool {
	_, after, _ := strings.Cut(text, "://")
	end := strings.IndexAny(after, "/?#")
	if end < 0 {
		return false
	}
	before, _, ok := strings.Cut(after[end:], "@")
	_, query, _ := strings.Cut(before, "?")
	return ok && !strings.Contains(query, "=")
}

// rawCharacter returns an error if the user name or the password has a character that
// must be written as an escape.
func rawCharacter(text string) error {
	_, after, _ := strings.Cut(text, "://")
	end := strings.LastIndexByte(after, '@')
	if end < 0 {
		return nil
	}
	login := after[:end]
	for i, c := range login {
		switch {
		case c == '%':
			if _, err := url.PathUnescape(login[i:min(i+3, len(login))]); err != nil {
				return errors.New("redis: a % in the user name or password that begins no escape: write it as %25")
			}
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._:~!$&'()*+,;=@", c):
		default:
			return fmt.Errorf("redis: %q in the user name or password: write it as %s", c, url.PathEscape(string(c)))
		}
	}
	return nil
}

// cutHosts removes the list of hosts from a URL, because package url supports only one.
func cutHosts(text string) (rest, list string) {
	scheme, after, ok := strings.Cut(text, "://")
	if !ok {
		return text, ""
	}
	end := len(after)
	if i := strings.IndexAny(after, "/?#"); i >= 0 {
		end = i
	}
	begin := strings.LastIndexByte(after[:end], '@') + 1
	return scheme + "://" + after[:begin] + "hosts" + after[end:], after[begin:end]
}

func schemeOptions(scheme string) (Options, error) {
	var o Options
	unknown := fmt.Errorf("redis: unknown URL scheme %q: want redis, rediss, redis+sentinel or redis+cluster", scheme)
	base, arrangement, _ := strings.Cut(scheme, "+")
	switch base {
	case "redis", "valkey":
	case "rediss", "valkeys":
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	default:
		return Options{}, unknown
	}
	if arrangement != "" {
		var ok bool
		if o.Mode, ok = ParseMode(arrangement); !ok {
			return Options{}, unknown
		}
	}
	return o, nil
}

// hosts splits a list of host or host:port.
func hosts(list, port string) ([]string, error) {
	if list == "" {
		return []string{net.JoinHostPort("127.0.0.1", port)}, nil
	}
	var addresses []string
	for host := range strings.SplitSeq(list, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		h, p, err := net.SplitHostPort(host)
		n, bad := strconv.ParseUint(p, 10, 16)
		switch {
		case err == nil && h == "": // perhaps only a password
			return nil, errors.New("redis: an address has no host: want host:port, and a password as in :password@host:port")
		case err != nil || strings.ContainsAny(h, "@% "):
			return nil, fmt.Errorf("redis: address %q: want host:port", host)
		case bad != nil || n == 0: // perhaps a password without its host
			return nil, fmt.Errorf("redis: the port of %q is not a number from 1 to 65535: want host:port, and a password as in :password@host:port", h)
		}
		addresses = append(addresses, host)
	}
	return addresses, nil
}

// setPath reads /db, or /master and /master/db for sentinels.
func (o *Options) setPath(path string) error {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if o.Mode == Sentinel {
		o.MasterName, parts = parts[0], parts[1:]
	}
	if len(parts) == 0 || len(parts) == 1 && parts[0] == "" {
		return nil
	}
	db, err := strconv.Atoi(parts[0])
	if err != nil || len(parts) > 1 {
		return fmt.Errorf("redis: path %q: want a database number", path)
	}
	o.DB = db
	return nil
}

func (o *Options) setQuery(raw string) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return errors.New("redis: malformed URL parameters")
	}
	for name := range query {
		value := query.Get(name)
		var err error
		switch name {
		case "prefix":
			o.Prefix = value
		case "timeout":
			o.Timeout, err = time.ParseDuration(value)
		case "strict_atomic":
			o.StrictAtomic, err = strconv.ParseBool(value)
		case "sentinel_username":
			o.SentinelUsername = value
		case "sentinel_password":
			o.SentinelPassword = value
		case "insecure_skip_verify":
			var skip bool
			if skip, err = strconv.ParseBool(value); err == nil && skip {
				if o.TLS == nil {
					return errors.New("redis: insecure_skip_verify without TLS: use rediss://")
				}
				o.TLS.InsecureSkipVerify = true
			}
		default:
			return fmt.Errorf("redis: unknown URL parameter %q", name)
		}
		if err != nil {
			return fmt.Errorf("redis: URL parameter %s: invalid value %q", name, value)
		}
	}
	return nil
}

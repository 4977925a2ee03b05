package forwardauth

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate/headgate/internal/door/httprequest"
	"github.com/headgate/headgate/internal/request/client"
	"github.com/headgate/headgate/internal/request/spelling"
)

// The longest values that a proxy may send, in bytes. A server's limit on headers
// applies first.
const (
	maxURI    = 32 << 10
	maxHost   = 512
	maxMethod = 64
)

// errPassed is about a proxy that lets its clients choose our settings.
var errPassed = errors.New("the client's query was appended to the forward-auth URL, where it would be read as settings; " +
	"in the proxy's configuration, end the URL with its own query, even an empty one: /v1/auth?")

// readOriginal fills q with the request that a trusted proxy describes in the header fields of
// r. The proxy must send the target in exactly one of three fields, since a second one
// comes from the client:
//
//   - X-Forwarded-Uri, with X-Forwarded-Method and X-Forwarded-Host: Traefik
//     and Caddy
//   - X-Original-URI, with X-Original-Method and Host: nginx
//   - X-Original-URL, a whole URL, with X-Original-Method: ingress-nginx
func (q *question) readOriginal(r *http.Request) error {
	field, uri, err := target(r.Header)
	if err != nil {
		return err
	}
	method, host := "X-Original-Method", r.Host
	switch field {
	case "X-Forwarded-Uri":
		method = "X-Forwarded-Method"
		forwarded, err := single(r.Header, "X-Forwarded-Host")
		if err != nil {
			return err
		}
		if forwarded != "" {
			host = forwarded
		}
	case "X-Original-Url":
		if host, uri, err = splitURL(uri); err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
	}
	q.Header, q.Host = r.Header, host
	if q.Method, err = single(r.Header, method); err != nil {
		return err
	}
	switch {
	case q.Method == "":
		return fmt.Errorf("%s is missing: the proxy must send it along with %s", method, field)
	case len(q.Method) > maxMethod || !spelling.IsToken(q.Method):
		return fmt.Errorf("%s is not an HTTP method", method)
	case len(host) > maxHost || !httprequest.IsHost(host):
		return fmt.Errorf("the host sent with %s is not valid", field)
	}
	if q.Path, q.RawQuery, err = splitURI(uri, q.Method); err != nil {
		return fmt.Errorf("%s %w", field, err)
	}
	if q.paths.Read(q.Path); q.paths.Beyond() {
		return fmt.Errorf("%s has a path that can be read in too many ways", field)
	}
	if r.URL.RawQuery != "" && r.URL.RawQuery == q.RawQuery {
		return errPassed
	}
	return nil
}

// target returns the one field that has the target of the request.
func target(h http.Header) (field, uri string, err error) {
	for _, name := range [...]string{"X-Forwarded-Uri", "X-Original-Uri", "X-Original-Url"} {
		value, err := single(h, name)
		switch {
		case err != nil:
			return "", "", err
		case value == "":
		case field != "":
			return "", "", fmt.Errorf("both %s and %s are set, so the client may have sent one of them: make the proxy remove the one it does not set", field, name)
		default:
			field, uri = name, value
		}
	}
	if field == "" {
		return "", "", errors.New("the original request is missing: make the proxy set X-Forwarded-Uri, X-Original-URI or X-Original-URL")
	}
	return field, uri, nil
}

// single returns the value of a field that may be set only once; empty if it is not set.
func single(h http.Header, name string) (string, error) {
	switch values := h[name]; len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", fmt.Errorf("%s is set more than once", name)
}

// splitURL splits an absolute URL into its host and the rest.
func splitURL(text string) (host, uri string, err error) {
	rest, ok := strings.CutPrefix(text, "http://")
	if !ok {
		rest, ok = strings.CutPrefix(text, "https://")
	}
	if !ok {
		return "", "", errors.New("it does not start with http:// or https://")
	}
	end := strings.IndexAny(rest, "/?")
	switch {
	case end < 0:
		return rest, "/", nil
	case rest[end] == '?':
		// The proxy appends the target, which starts with /, to the host. So the
		// client has sent this ? in its Host, to hide the path.
		return "", "", errors.New("it has a ? before its path")
	}
	return rest[:end], rest[end:], nil
}

// splitURI splits the target in a request line into path and query, both unchanged. Its
// errors continue a sentence that starts with the name of a field.
func splitURI(uri, method string) (path, query string, err error) {
	switch {
	case len(uri) > maxURI:
		return "", "", fmt.Errorf("is longer than %d bytes", maxURI)
	case uri == "*" && method == http.MethodOptions:
		return uri, "", nil
	case uri[0] != '/':
		return "", "", errors.New("does not start with /")
	case strings.ContainsFunc(uri, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '#' }):
		return "", "", errors.New("has characters that are not allowed in a request line")
	}
	path, query, _ = strings.Cut(uri, "?")
	if _, err = url.PathUnescape(path); err != nil {
		return "", "", errors.New("has an invalid percent-encoding in its path")
	}
	if strings.Count(query, "&") >= client.MaxParameters {
		return "", "", fmt.Errorf("has more than %d parameters", client.MaxParameters)
	}
	return path, query, nil
}

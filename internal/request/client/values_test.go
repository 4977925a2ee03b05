package client_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/request/client"
)

const noValue, anyValue = "<none>", "<unclear>"

func shownValue(v client.Value) string {
	switch {
	case v.Unclear:
		return anyValue
	case !v.OK:
		return noValue
	}
	return v.Text
}

func TestReadCookie(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"": noValue, "a=1": noValue, "tok=x": "x", "a=1; tok=x ;b=2": "x", "tok=": "", "tok=x; tok=x": "x", "a=btok=x": noValue,
		`tok={"a": 1}`: `{"a": 1}`, "mail=tok@site.example; tok=x": "x",
		"tok=x; tok=y": anyValue, "tok": anyValue, "tok= x": anyValue, "tok =x": anyValue, "tok=\tx": anyValue, "Tok=x": anyValue, "t%6fk=x": anyValue, "tok[]=x": anyValue, "tok=x; tok[1]=x": anyValue,
		"a=b tok=x": anyValue, "a=b,\ttok=x": anyValue, "a=b tok = x c=d": anyValue, "\xa0tok=x": anyValue, "tok\xa0=x": anyValue,
		strings.Repeat("a;", 999) + "tok=x":  "x",
		strings.Repeat("a;", 1000) + "tok=x": anyValue, // PHP reads a thousand
	} {
		if got := shownValue(client.ReadCookie(http.Header{"Cookie": {line}}, "tok")); got != want {
			t.Errorf("%.60q: %q, want %q", line, got, want)
		}
	}
	if got := shownValue(client.ReadCookie(http.Header{"Cookie": {"tok=x", "tok=y"}}, "tok")); got != anyValue {
		t.Errorf("in two lines: %q", got)
	}
}

func TestReadQuery(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"": noValue, "a=1": noValue, "user=J": "J", "user=%4A+%26": "J &", "user=+J%20": "J", "user=J%09": "J", "user=": "", "user": "", "user=J&user=%4A": "J", "&&user=J&": "J",
		"user=a]b": "a]b", "user=Jos%C3%A9": "Jos\u00e9",
		"user=J&user=K": anyValue, "User=J": anyValue, "us%65r=J": anyValue, "user[]=J": anyValue, "user%00=J": anyValue, "user[x=J": anyValue,
		"user=%zz": anyValue, "user=J;a=1": anyValue, "a=1;user=J": anyValue, "user=J1]=": anyValue, // the name ends at ]= to qs
		"user=%E2%80%8BJ": anyValue, "user=J%00": anyValue, "user=J%C2%A0": anyValue, "user=%ff": anyValue,
	} {
		if got := shownValue(client.ReadQuery(query, "user")); got != want {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
	if got := shownValue(client.ReadQuery("filter[a]=1&filter[b]=2", "filter[a]")); got != "1" {
		t.Errorf("a name with brackets: %q", got)
	}
}

func TestReadHeader(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		h    http.Header
		want string
	}{
		{http.Header{}, noValue},
		{http.Header{"X-Api-Key": {"a"}}, "a"},
		{http.Header{"X-Api-Key": {"a", "a"}}, "a"},
		{http.Header{"X-Api-Key": {"a", "b"}}, anyValue},
		{http.Header{"X_api_key": {"a"}}, anyValue},
		{http.Header{"X-Api-Key": {"a"}, "X.Api.Key": {"b"}}, anyValue},
		{http.Header{"X-Api-Key": {"a"}, "X_Api_Keys": {"b"}}, "a"},
	} {
		if got := shownValue(client.ReadHeader(row.h, "X-Api-Key")); got != row.want {
			t.Errorf("%v: %q, want %q", row.h, got, row.want)
		}
	}
	if got := shownValue(client.ReadHeader(http.Header{"Authorization": {"Bearer t", "Bearer t"}}, "Authorization")); got != anyValue {
		t.Errorf("credentials twice: %q", got)
	}
}

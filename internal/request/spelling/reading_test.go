package spelling_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/request/spelling"
)

// token is a JWT whose signature has unused bits in its last digit.
const token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJlLW9mLTIwLWJ5dGVz"

// Of each form: what is clear, and how it is read.
func TestClearTexts(t *testing.T) {
	t.Parallel()
	laravel := base64.StdEncoding.EncodeToString([]byte(`{"iv":"a","value":"bcd","mac":"e"}`))
	for form, rows := range map[spelling.Form]map[string]string{
		spelling.Plain:   {"": "", " x%41\xa0": " x%41\xa0"},
		spelling.InField: {"": "", " x ": "x", "a, b": "a, b", "größe": "größe", token: token, "%41": "%41"},
		spelling.InCookie: {
			"": "", "real": "real", ` "real" `: "real", "r%65al": "real", "%2541": "%41", "a+b": "a+b", `"a b"`: "a b", "Jos%C3%A9": "José", "a%20b": "a b",
			"s%3Aabc.c2lnbmF0dXJlK29m": "s:abc.c2lnbmF0dXJlK29m", "john.smith@mail.example": "john.smith@mail.example",
			`{"a": 1,"b":"x"}`: `{"a": 1,"b":"x"}`, "%7B%22a%22%3A1%7D": `{"a":1}`, `j:{"a":1}`: `j:{"a":1}`, "[1, 2]": "[1, 2]",
			token: token, strings.ReplaceAll(laravel, "=", "%3D"): laravel, ".eJwlzj.aGVsbG8.c2lnbmF0dXJl": ".eJwlzj.aGVsbG8.c2lnbmF0dXJl",
		},
		spelling.InParameter: {"": "", "a+b%20c": "a b c", "+x+": "x", "%2541": "%41", "größe": "größe", "a=b": "a=b"},
		spelling.InCredentials: {
			"": "", "Bearer t": "Bearer t", "bearer  t": "Bearer t", "BEARER\tt": "Bearer t", "Token t": "Token t", "t": "t", "Bearer " + token: "Bearer " + token,
			"basic YW5uOnBhc3M=": "Basic YW5uOnBhc3M=", `Digest username="ann", uri="/x"`: `Digest username="ann", uri="/x"`,
		},
	} {
		for sent, want := range rows {
			if got, isClear := form.Read(sent); got != want || !isClear {
				t.Errorf("form %d: %q is read as %q, clear %v, want %q", form, sent, got, isClear, want)
			}
		}
	}
}

func TestUnclearTexts(t *testing.T) {
	t.Parallel()
	for form, rows := range map[spelling.Form][]string{
		spelling.InField: {"\xa0x", "x\u200b", token + "=", token[:len(token)-1] + "!z", "eyJh.e30.AB", "eyJh.e30.AA+/"},
		spelling.InCookie: {
			`"r\145al"`, `"real`, `"`, `"a"b"`, `a\b`, `a"b`, "real\xa0", "José", "r%zzal", "100%", "a b", `j:"real"`, `j:["real"]`, `j:%22real%22`, "%C2%A0x", "x%00", token + "%3D", "eyJhIjoxfQ=", "eyJhIjoxf",
		},
		spelling.InParameter: {"%zz", "%E2%80%8Bx", "x%00", "a]=", "a%5D=b", "x%ff", token + "="},
		spelling.InCredentials: {
			"Basic YW5uOnBhc3M", "Basic YW5uOnBhc3M==", "Basic YW5u OnBhc3M=", "Basic YW5uOnBhc3N=", "Basic YTpiAA==", "Basic real", "Basic YW5uOnBhc3M=x", "Bearer", "Bearer t x", "Bearer t,x", `Bearer "t"`, "Bearer\xa0t",
			"xBearer t", "Foo Bearer t", "Foo bearert", `Digest a="Bearer t"`, "Digest t x", "Foo YW5uOnBhc3M=", "Bearer YW5u*OnBhc3M", "Bearer " + token + "=",
		},
	} {
		for _, sent := range rows {
			if got, isClear := form.Read(sent); isClear {
				t.Errorf("form %d: %q is clear, as %q", form, sent, got)
			}
		}
	}
}

func TestKeysOfTexts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Bearer t": "Bearer t", "Token t": "Bearer t", "t": "Bearer t", "Basic YTpi": "Basic YTpi", "Digest a=b, c=d": "Digest a=b, c=d", "": "",
	} {
		if got := spelling.InCredentials.Key(text); got != want {
			t.Errorf("%q is counted as %q, want %q", text, got, want)
		}
	}
	if got := spelling.InCookie.Key("a+b"); got != "a b" {
		t.Error(got)
	}
}

package jwt

import "testing"

// Any input results in keys or an error, and no key fits an algorithm with a secret.
func FuzzKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"oct","k":"AAAA"}]}`))
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := parseKeys(data)
		if err == nil && len(keys) == 0 {
			t.Error("neither keys nor an error")
		}
		for _, k := range keys {
			if k.public == nil || k.fits("HS256") || k.fits("none") {
				t.Errorf("%+v", k)
			}
		}
	})
}

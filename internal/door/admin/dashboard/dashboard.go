// Package dashboard serves the pages of the admin door, such as the dashboard, the
// rules and the playground.
//
// Their source is in web/. `make web` builds the files in dist. They are committed so
// that building Headgate needs no Node, and `make web-check` checks them against their
// source. `make build` adds what the playground runs, in the folder playground. The
// pages load nothing from other hosts; their policy forbids it.
package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed all:dist playground
var files embed.FS

// arithmetic is what the playground runs: WebAssembly. It is not committed, so a binary
// that was built without scripts/wasm.sh does not have it.
const arithmetic = "playground/headgate.wasm.gz"

// policy is the Content-Security-Policy of every page: everything from this host,
// nothing inline, no framing. The playground runs WebAssembly.
const policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// typeOf returns the media type of a file in dist. It does not use the operating
// system's table, which may say text/plain for a script: browsers would not run it.
func typeOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".wasm":
		return "application/wasm"
	case ".woff2":
		return "font/woff2"
	}
	return "application/octet-stream"
}

// Routes returns the handlers of the pages, by [http.ServeMux] pattern. A page's
// address is its file name without the extension, and / for index.
func Routes() (map[string]http.Handler, error) {
	routes := make(map[string]http.Handler)
	err := fs.WalkDir(files, "dist", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := files.ReadFile(file)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(file, "dist/")
		a, err := newAsset(name, data)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		routes["GET "+address(name)] = a
		return nil
	})
	if data, missing := files.ReadFile(arithmetic); missing == nil && err == nil {
		var a *asset
		a, err = newAsset(path.Base(arithmetic), data)
		routes["GET "+address(path.Base(arithmetic))] = a
	}
	return routes, err
}

// address returns the pattern under which a file is served.
func address(name string) string {
	page, isPage := strings.CutSuffix(name, ".html")
	switch {
	case page == "index" && isPage:
		return "/{$}"
	case isPage:
		return "/" + page
	}
	return "/" + name
}

// asset is one file of dist, ready to send.
type asset struct {
	kind string // media type
	// plain is nil if the file is compressed as it is.
	plain, zipped []byte
	etag, cache   string
	isPage        bool
}

func newAsset(name string, data []byte) (*asset, error) {
	a := &asset{isPage: path.Ext(name) == ".html", cache: "no-cache"}
	if strings.HasPrefix(name, "assets/") {
		// Their names contain a hash of their content.
		a.cache = "max-age=31536000, immutable"
	}
	sum := sha256.Sum256(data)
	a.etag = hex.EncodeToString(sum[:8])
	if bare, ok := strings.CutSuffix(name, ".gz"); ok {
		a.kind, a.zipped = typeOf(bare), data
		return a, nil
	}
	a.kind, a.plain = typeOf(name), data
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if b.Len() < len(data) {
		a.zipped = b.Bytes()
	}
	return a, nil
}

// ServeHTTP implements [http.Handler].
func (a *asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", a.cache)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if a.isPage {
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
	}
	if a.zipped != nil && TakesGzip(r.Header.Values("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
		h.Set("ETag", `"`+a.etag+`-gz"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.zipped))
		return
	}
	h.Set("ETag", `"`+a.etag+`"`)
	plain := a.plain
	if plain == nil {
		var err error
		if plain, err = unzip(a.zipped); err != nil {
			http.Error(w, "the file is corrupt", http.StatusInternalServerError)
			return
		}
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(plain))
}

// unzip serves the few clients that do not accept gzip.
func unzip(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// TakesGzip reports whether these values of Accept-Encoding allow gzip: by name or
// by *, with a weight other than 0 (RFC 9110 §12.5.3).
func TakesGzip(values []string) bool {
	any := false
	for _, value := range values {
		for element := range strings.SplitSeq(value, ",") {
			coding, params, _ := strings.Cut(element, ";")
			weight := strings.ReplaceAll(strings.TrimSpace(params), " ", "")
			refused := weight == "q=0" || strings.HasPrefix(weight, "q=0.") && strings.Trim(weight[len("q=0."):], "0") == ""
			switch strings.ToLower(strings.TrimSpace(coding)) {
			case "gzip", "x-gzip":
				return !refused
			case "*":
				any = !refused
			}
		}
	}
	return any
}

package main

import (
	"archive/zip"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user and group of the process in the image.
const user = 65532

// spdxType is the media type of the list of parts.
const spdxType = "application/spdx+json"

// image writes the image for containers: a folder in OCI's layout, and the same as
// a tar file. An index has an image for each Linux platform, and next to each the
// list of its parts, which names it as its subject.
func (r *release) image(b *built, dist string) error {
	base, err := baseFiles()
	if err != nil {
		return err
	}
	var index v1.ImageIndex = empty.Index
	var lists []v1.Image
	for _, p := range r.platforms {
		if p.system != "linux" {
			continue
		}
		img, err := r.imageFor(b, p, base)
		if err != nil {
			return fmt.Errorf("image for %s: %w", p, err)
		}
		list, err := r.attached(b, p, img)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.system, Architecture: p.arch}}})
		lists = append(lists, list)
	}
	if len(lists) == 0 {
		return nil
	}
	index = mutate.IndexMediaType(index, types.OCIImageIndex)
	index, _ = mutate.Annotations(index, r.labels()).(v1.ImageIndex)
	folder := filepath.Join(dist, "image")
	to, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	name := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version})
	if err := to.AppendIndex(index, name); err != nil {
		return err
	}
	for _, list := range lists {
		if err := to.AppendImage(list); err != nil {
			return err
		}
	}
	return r.tarFolder(folder, filepath.Join(dist, "headgate_"+r.bare()+"_image.tar"))
}

// tarFolder writes a tar file of a folder.
func (r *release) tarFolder(folder, to string) error {
	var files []file
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path) //nolint:gosec // of the release
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		files = append(files, file{filepath.ToSlash(name), 0o644, data})
		return err
	})
	if err != nil {
		return err
	}
	data, err := tarred(files, r.date)
	if err != nil {
		return err
	}
	return save(to, data)
}

// labels are what the image says of itself.
func (r *release) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":         "Headgate",
		"org.opencontainers.image.description":   "Exact rate limiter for HTTP and gRPC",
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.source":        "https://github.com/headgate/headgate",
		"org.opencontainers.image.documentation": "https://github.com/headgate/headgate/blob/main/docs/start/install.md",
		"org.opencontainers.image.version":       r.version,
		"org.opencontainers.image.revision":      r.commit,
		"org.opencontainers.image.created":       r.date.Format(time.RFC3339),
	}
}

// imageFor returns the image of one platform: certificates and time zones in a
// layer that changes rarely, the binary in another.
func (r *release) imageFor(b *built, p platform, base []file) (v1.Image, error) {
	binary, err := os.ReadFile(b.binaries[p])
	if err != nil {
		return nil, err
	}
	own := []file{
		{"headgate", 0o755, binary},
		{"licenses/LICENSE", 0o644, b.license},
		{"licenses/NOTICES.txt", 0o644, b.notices},
	}
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	at := v1.Time{Time: r.date}
	for _, layer := range []struct {
		by    string
		files []file
	}{{"certificates and time zones", base}, {"headgate", own}} {
		data, err := tarred(layer.files, r.date)
		if err != nil {
			return nil, err
		}
		open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
		packed, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
		if err != nil {
			return nil, err
		}
		img, err = mutate.Append(img, mutate.Addendum{
			Layer:   packed,
			History: v1.History{Created: at, CreatedBy: layer.by},
		})
		if err != nil {
			return nil, err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.system, p.arch, at
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", user, user),
		Entrypoint: []string{"/headgate"},
		Cmd:        []string{"serve"},
		Env:        []string{"PATH=/"},
		WorkingDir: "/etc/headgate",
		Labels:     r.labels(),
		ExposedPorts: map[string]struct{}{
			"8000/tcp": {}, "8080/tcp": {}, "8081/tcp": {}, "6380/tcp": {}, "6070/tcp": {},
		},
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return nil, err
	}
	return img, nil
}

// attached returns the list of parts of an image, as an artifact about it.
func (r *release) attached(b *built, p platform, about v1.Image) (v1.Image, error) {
	data, err := r.sbom(b, p)
	if err != nil {
		return nil, err
	}
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, spdxType) // the type of the artifact
	if img, err = mutate.AppendLayers(img, static.NewLayer(data, spdxType)); err != nil {
		return nil, err
	}
	digest, err := about.Digest()
	if err != nil {
		return nil, err
	}
	size, err := about.Size()
	if err != nil {
		return nil, err
	}
	img, _ = mutate.Subject(img, v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digest, Size: size}).(v1.Image)
	return img, nil
}

// baseFiles returns what a program from scratch lacks: the authorities that Mozilla
// trusts, time zones, and the user's name.
func baseFiles() ([]file, error) {
	zones, err := zoneFiles()
	if err != nil {
		return nil, err
	}
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // trusted in part, which a file of certificates cannot say
		}
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return append([]file{
		{"etc/passwd", 0o644, fmt.Appendf(nil, "root:x:0:0:root:/:/nologin\nheadgate:x:%d:%[1]d:headgate:/:/nologin\n", user)},
		{"etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\nheadgate:x:%d:\n", user)},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots.Bytes()},
		{"etc/headgate/", 0o755, nil},
	}, zones...), nil
}

// zoneFiles returns the time zones of Go's own archive.
func zoneFiles() ([]file, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output() //nolint:noctx // takes milliseconds
	if err != nil {
		return nil, err
	}
	z, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return nil, err
	}
	defer z.Close() //nolint:errcheck // only read
	var files []file
	for _, f := range z.File {
		if f.FileInfo().IsDir() {
			continue
		}
		in, err := f.Open()
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(io.LimitReader(in, 1<<20))
		if err != nil {
			return nil, err
		}
		files = append(files, file{"usr/share/zoneinfo/" + f.Name, 0o644, data})
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

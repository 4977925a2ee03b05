package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// file is one file of an archive.
type file struct {
	name string // with slashes
	mode int64
	data []byte
}

// archives writes an archive for every platform: zip for Windows, tar.gz for the
// others.
func (r *release) archives(b *built, dist string) error {
	for _, p := range r.platforms {
		binary, err := os.ReadFile(b.binaries[p])
		if err != nil {
			return err
		}
		name := fmt.Sprintf("headgate_%s_%s_%s", r.bare(), p.system, p.arch)
		write, suffix, program := tarGz, ".tar.gz", "headgate"
		if p.system == "windows" {
			write, suffix, program = zipped, ".zip", "headgate.exe"
		}
		files := []file{
			{program, 0o755, binary},
			{"LICENSE", 0o644, b.license},
			{"NOTICES.txt", 0o644, b.notices},
			{"README.md", 0o644, b.readme},
			{"CHANGELOG.md", 0o644, b.changelog},
		}
		for _, shell := range slices.Sorted(maps.Keys(b.completions)) {
			files = append(files, file{"completions/" + completionName(shell), 0o644, b.completions[shell]})
		}
		for _, page := range slices.Sorted(maps.Keys(b.man)) {
			files = append(files, file{"man/man1/" + page, 0o644, b.man[page]})
		}
		for i := range files {
			files[i].name = name + "/" + files[i].name
		}
		data, err := write(files, r.date)
		if err != nil {
			return err
		}
		if err := save(filepath.Join(dist, name+suffix), data); err != nil {
			return err
		}
	}
	return nil
}

// completionName is the name under which a shell finds a script.
func completionName(shell string) string {
	switch shell {
	case "zsh":
		return "_headgate"
	case "powershell":
		return "headgate.ps1"
	default:
		return "headgate." + shell
	}
}

// tarGz returns an archive of files, all of the same time and of root.
func tarGz(files []file, at time.Time) ([]byte, error) {
	plain, err := tarred(files, at)
	if err != nil {
		return nil, err
	}
	return gzipped(plain)
}

func tarred(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if f.name[len(f.name)-1] == '/' {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// gzipped compresses as gzip -9n does: without a name and a time.
func gzipped(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

func zipped(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(os.FileMode(f.mode))
		to, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := to.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// save writes a file that everyone may read.
func save(path string, data []byte) error {
	return os.WriteFile(path, data, 0o644) //nolint:gosec // a release is public
}

// Package secretfile reads files with a secret.
package secretfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxSize is the size of the largest file that is read.
const maxSize = 64 << 10

// Read returns the secret in a file, and what is known of the file. A byte order mark at
// the start, which Windows' editors write, and line breaks at the end are not part of it.
func Read(name string) (secret string, info os.FileInfo, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", nil, err
	}
	return ReadFrom(f)
}

// ReadFrom is Read of an open file, which it closes.
func ReadFrom(f *os.File) (secret string, info os.FileInfo, err error) {
	defer func() { _ = f.Close() }() // it was only read
	if info, err = f.Stat(); err != nil {
		return "", nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return "", info, err
	}
	secret, err = clean(text)
	if err != nil {
		return "", info, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return secret, info, nil
}

func clean(text []byte) (string, error) {
	if len(text) > maxSize {
		return "", errors.New("the file is larger than 64 KiB")
	}
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		return "", errors.New("the file is in UTF-16: save it as UTF-8")
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	text = bytes.TrimRight(text, "\r\n")
	if len(text) == 0 {
		return "", errors.New("the file is empty")
	}
	return string(text), nil
}

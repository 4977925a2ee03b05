//go:build unix

package doctor

import "golang.org/x/sys/unix"

// writableFolder returns an error if this user may not make files in a folder.
func writableFolder(name string) error { return unix.Access(name, unix.W_OK|unix.X_OK) }

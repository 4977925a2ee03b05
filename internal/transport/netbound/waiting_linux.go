package netbound

import (
	"net"
	"os"
	"syscall"
)

// acceptWaiting returns the connections that wait to be accepted, and shuts l down right
// after, so that next to none is lost in between.
func acceptWaiting(l net.Listener) (conns []net.Conn) {
	raw, ok := l.(syscall.Conn)
	if !ok {
		return nil
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return nil
	}
	var accepted []int
	_ = control.Control(func(fd uintptr) {
		for {
			nfd, _, err := syscall.Accept4(int(fd), syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
			switch err {
			case nil:
				accepted = append(accepted, nfd)
			case syscall.EINTR, syscall.ECONNABORTED:
			default: // no more, or no file descriptors
				_ = syscall.Shutdown(int(fd), syscall.SHUT_RD)
				return
			}
		}
	})
	for _, fd := range accepted {
		f := os.NewFile(uintptr(fd), "")
		if nc, err := net.FileConn(f); err == nil { // it has its own file descriptor
			conns = append(conns, nc)
		}
		_ = f.Close()
	}
	return conns
}

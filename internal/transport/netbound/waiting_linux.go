package netbound

import (
	"net"
	"os"
	"syscall"
)

// acceptWaiting returns the connections that wait to be accepted, and lets l have
// no more: between the two there is nothing but a system call, so that next to
// none is lost.
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
			default: // there are no more, or no descriptors for them
				_ = syscall.Shutdown(int(fd), syscall.SHUT_RD)
				return
			}
		}
	})
	for _, fd := range accepted {
		f := os.NewFile(uintptr(fd), "")
		if nc, err := net.FileConn(f); err == nil { // it has a descriptor of its own
			conns = append(conns, nc)
		}
		_ = f.Close()
	}
	return conns
}

package netbound

import (
	"math"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lateComers is for how long connections are accepted whose handshake had begun.
const lateComers = 10 * time.Millisecond

// acceptWaiting returns the connections that wait to be accepted, and shuts l down. Those whose
// handshake has begun still arrive, and no others begin one, so that none is lost in between.
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
	accept := func(fd uintptr) {
		for {
			nfd, _, err := syscall.Accept4(int(fd), syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
			switch err {
			case nil:
				accepted = append(accepted, nfd)
			case syscall.EINTR, syscall.ECONNABORTED:
			default: // no more, or no file descriptors
				return
			}
		}
	}
	if _, tcp := l.(*net.TCPListener); tcp {
		_ = control.Control(ignoreNew)
		_ = control.Control(accept)
		time.Sleep(lateComers) //nolint:forbidigo // handshakes take real time
	}
	_ = control.Control(func(fd uintptr) {
		accept(fd)
		_ = syscall.Shutdown(int(fd), syscall.SHUT_RD)
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

// ignoreNew makes a TCP listener ignore segments with SYN but not ACK, as if they were lost.
func ignoreNew(fd uintptr) {
	const syn, ack, flags = 0x02, 0x10, 13 // in byte 13 of the TCP header
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: syn | ack},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: math.MaxUint32},
	}
	_ = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// setWaiting sets how many connections may wait to be accepted by a TCP listener; 0 for as
// many as the system allows.
func setWaiting(l net.Listener, n int) {
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	if n == 0 {
		n = math.MaxInt32
	}
	_ = raw.Control(func(fd uintptr) { _ = syscall.Listen(int(fd), n) })
}

package main

import (
	"context"
	"errors"
	"io"
	"net"
)

// spliceBuffer is what one read takes at most; gRPC writes up to 32 KiB at once.
const spliceBuffer = 32 << 10

// serveSplice copies bytes between its socket and another until ctx ends. It
// does what every proxy does at least, and nothing else.
func serveSplice(ctx context.Context, listen, target string) error {
	listener, err := net.Listen("unix", listen)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	for {
		caller, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		go splice(caller, target)
	}
}

// splice joins a caller to the target until either side has ended.
func splice(caller net.Conn, target string) {
	defer caller.Close()
	driver, err := net.Dial("unix", target)
	if err != nil {
		return
	}
	defer driver.Close()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{caller, driver}, {driver, caller}} {
		go func() {
			copyBytes(way[1], way[0])
			ended <- struct{}{}
		}()
	}
	<-ended
}

// copyBytes reads and writes until either fails. It is a loop of its own and not
// io.Copy, which hands the bytes to the kernel's splice: a proxy that looks at
// what it forwards cannot do that.
func copyBytes(to io.Writer, from io.Reader) {
	buffer := make([]byte, spliceBuffer)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

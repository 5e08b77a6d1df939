package main

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"sync/atomic"
)

const plainMethod = "/csi.v1.Controller/CreateVolume"

// plainDriver is a driver without a gRPC library.
type plainDriver struct {
	answer atomic.Pointer[headerCase]
	seen   chan map[string]string
}

// serve serves until stop.
func (d *plainDriver) serve(socket string) (stop func(), err error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: d, Protocols: unencryptedHTTP2()}
	go func() { _ = server.Serve(listener) }() // until stop
	return func() { _ = server.Close() }, nil
}

// unencryptedHTTP2 is what gRPC speaks on a socket.
func unencryptedHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

func (d *plainDriver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()["Date"] = nil
	w.Header().Set("Content-Type", "application/grpc")
	if r.URL.Path != plainMethod {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(frame(answerProbe(r.URL.Path)))
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		return
	}
	body, _ := io.ReadAll(r.Body) // what is missing is a difference
	facts := map[string]string{
		"driver: :authority": r.Host, "driver: :path": r.URL.Path, "driver: :method": r.Method,
		"driver: body": fmt.Sprintf("%x", body),
	}
	note(facts, "driver", r.Header)
	d.seen <- facts
	c := d.answer.Load()
	maps.Copy(w.Header(), c.header)
	if !c.noAnswer {
		_, _ = w.Write(frame([]byte("answer")))
	} else if c.trailer != nil {
		w.(http.Flusher).Flush()
	}
	for key, values := range c.trailer {
		w.Header()[http.TrailerPrefix+key] = values
	}
}

package failover

import (
	"bytes"
	"context"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A kubelet logs a connection that ends before TLS has begun, and would each ten seconds.
func TestAKubeletThatAnswersLogsNothing(t *testing.T) {
	var said bytes.Buffer
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(&said, "", 0)
	ended := make(chan struct{}, 1)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			ended <- struct{}{}
		}
	}
	s.StartTLS()
	defer s.Close()
	address := s.Listener.Addr().String()
	if err := dialPort(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("the connection is not ended")
	}
	s.Close()
	if said.Len() > 0 {
		t.Errorf("it logs %q", said.String())
	}
	if err := dialPort(t.Context(), address); err == nil || noAnswer(err) {
		t.Errorf("a refusal is an answer: %v", err)
	}
}

func TestAConnectionThatNobodyAnswersIsNoAnswer(t *testing.T) {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if err := dialPort(ctx, "192.0.2.1:10250"); !noAnswer(err) {
		t.Errorf("%v", err)
	}
}

package proxy_test

import (
	"bytes"
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// heap is what is in use once garbage is gone.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Driver, proxy and caller are in one process: the heap is that of all three.
func TestReaderThatStallsOnALargeAnswerDoesNotFillTheMemory(t *testing.T) {
	const (
		piece  = 1 << 20
		pieces = 256
		// What gRPC's flow control lets through at most, of each connection: its
		// window grows up to 16 MiB.
		windows = 3 * 16 << 20
	)
	message := bytes.Repeat([]byte{0xa5}, piece)
	var sent atomic.Int64
	d := newDriver(t)
	d.onStream = func(_ string, stream grpc.ServerStream) error {
		for range pieces {
			if err := stream.SendMsg(message); err != nil {
				return err
			}
			sent.Add(1)
		}
		return nil
	}
	d.start(t)
	both(t, d, func(t *testing.T, conn *grpc.ClientConn) {
		sent.Store(0)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, echoThrice, raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg([]byte("go")); err != nil {
			t.Fatal(err)
		}
		before := heap()
		const read = 16
		readPieces(t, stream, read)
		stalled := awaitStandstill(t, &sent)
		grown := heap() - before
		time.Sleep(500 * time.Millisecond)
		if now := sent.Load(); now != stalled {
			t.Errorf("the driver goes on sending to a reader that stalls: %d messages, then %d", stalled, now)
		}
		t.Logf("read %d MiB, the driver has sent %d of %d MiB, the heap has grown by %.1f MiB", read, stalled, pieces, float64(grown)/(1<<20))
		if ahead := (stalled - read) * piece; ahead > windows {
			t.Errorf("the driver is %d MiB ahead of the reader", ahead>>20)
		}
		if grown > windows {
			t.Errorf("the heap has grown by %d MiB", grown>>20)
		}
		readPieces(t, stream, 100) // what was held back comes on
	})
}

func readPieces(t *testing.T, stream grpc.ClientStream, n int) {
	t.Helper()
	for range n {
		var out []byte
		if err := stream.RecvMsg(&out); err != nil {
			t.Fatal(err)
		}
		if len(out) != 1<<20 || out[0] != 0xa5 || out[len(out)-1] != 0xa5 {
			t.Fatalf("a message of %d bytes that is not what was sent", len(out))
		}
	}
}

// awaitStandstill returns the count once it has not changed for 300 ms.
func awaitStandstill(t *testing.T, count *atomic.Int64) int64 {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for last := int64(-1); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		now := count.Load()
		if now == last {
			return now
		}
		last = now
	}
	t.Fatal("the driver does not stop sending to a reader that stalls")
	return 0
}

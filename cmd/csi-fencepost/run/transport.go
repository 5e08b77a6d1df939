package run

import (
	"net/http"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// readAhead is how many bytes of one answer the API server may send before they
// are decoded. Go's HTTP/2 takes 4 MiB of each: at the start, when the lists of
// six kinds are streamed at once, that was more than the index of 10,000 volumes. An
// API server a millisecond away can still send 128 MiB each second.
const readAhead = 128 << 10

var readAheadSet sync.Mutex // transports are shared by clients

// limitReadAhead is for rest.Config.Wrap. It leaves Go's own default transport as
// it is, which is used where the API server is reached without TLS.
func limitReadAhead(rt http.RoundTripper) http.RoundTripper {
	readAheadSet.Lock()
	defer readAheadSet.Unlock()
	for inner := rt; inner != nil && inner != http.DefaultTransport; {
		switch t := inner.(type) {
		case *http.Transport:
			if t.HTTP2 == nil {
				t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: readAhead}
			}
			return rt
		case utilnet.RoundTripperWrapper:
			inner = t.WrappedRoundTripper()
		default:
			return rt
		}
	}
	return rt
}

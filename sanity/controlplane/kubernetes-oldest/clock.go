package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// skewedClock makes a kubelet's clock wrong as far as the API server can see:
// the timestamps that it writes into its lease and into its Node's conditions
// are moved by offset on the wire. All else of the machine keeps real time.
type skewedClock struct {
	next   http.RoundTripper
	offset time.Duration
}

func (s *skewedClock) RoundTrip(req *http.Request) (*http.Response, error) {
	fields := clockFields(req.Method, req.URL.Path)
	if fields == nil || req.Body == nil {
		return s.next.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	req.Body.Close()
	if err != nil {
		return nil, err
	}
	shifted, err := shiftTimes(body, fields, s.offset)
	if err != nil {
		return nil, fmt.Errorf("shifting the clock of %s %s: %w", req.Method, req.URL.Path, err)
	}
	req = req.Clone(req.Context())
	req.Body = io.NopCloser(bytes.NewReader(shifted))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(shifted)), nil }
	req.ContentLength = int64(len(shifted))
	req.Header.Set("Content-Length", strconv.Itoa(len(shifted)))
	return s.next.RoundTrip(req)
}

// clockFields names the fields of a request's body that carry the kubelet's
// clock; nil for a request that carries none.
func clockFields(method, path string) map[string]bool {
	if method != http.MethodPost && method != http.MethodPut && method != http.MethodPatch {
		return nil
	}
	switch {
	case strings.HasPrefix(path, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"):
		return map[string]bool{"renewTime": true, "acquireTime": true}
	case path == "/api/v1/nodes" || strings.HasPrefix(path, "/api/v1/nodes/"):
		return map[string]bool{"lastHeartbeatTime": true, "lastTransitionTime": true}
	}
	return nil
}

// shiftTimes moves every RFC 3339 time under one of the named fields, and
// changes nothing else of the JSON document.
func shiftTimes(body []byte, fields map[string]bool, offset time.Duration) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var document any
	if err := decoder.Decode(&document); err != nil {
		return nil, err
	}
	if err := shift(document, fields, offset); err != nil {
		return nil, err
	}
	return json.Marshal(document)
}

func shift(value any, fields map[string]bool, offset time.Duration) error {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			if err := shift(item, fields, offset); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, item := range v {
			text, isText := item.(string)
			if !fields[key] || !isText {
				if err := shift(item, fields, offset); err != nil {
					return err
				}
				continue
			}
			at, err := time.Parse(time.RFC3339Nano, text)
			if err != nil {
				return fmt.Errorf("field %s: %w", key, err)
			}
			layout := time.RFC3339
			if strings.Contains(text, ".") {
				layout = "2006-01-02T15:04:05.000000Z07:00" // metav1.MicroTime
			}
			v[key] = at.Add(offset).Format(layout)
		}
	}
	return nil
}

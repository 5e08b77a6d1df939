package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

// What HTTP/2 shows of a call, with no gRPC library at either end: callers and
// drivers are not all written in Go.

// A headerRow is one header field that one end saw.
type headerRow struct {
	call, field     string
	direct, proxied string
	exception       string // empty and not the same: a fault
}

func (r headerRow) fault() bool { return r.direct != r.proxied && r.exception == "" }

// headerCase is a call: what the caller sends, and what the driver answers.
type headerCase struct {
	name            string
	send            http.Header
	header, trailer http.Header
	noAnswer        bool // no message: a status alone
}

var headerCases = []headerCase{
	{
		name: "success",
		send: http.Header{"Grpc-Timeout": {"90S"}, "Grpc-Accept-Encoding": {"identity,deflate"}, "Grpc-Encoding": {"identity"},
			"Repeated": {"1", "2", "1"}, "Padded-Bin": {"AP8="}, "Unpadded-Bin": {"AP8"}},
		header:  http.Header{"H": {"1", "2"}, "H-Bin": {"AP8"}, "Grpc-Accept-Encoding": {"identity"}},
		trailer: http.Header{"Grpc-Status": {"0"}, "T": {"3", "3"}, "T-Bin": {"AP8="}},
	},
	{name: "error after a header", header: http.Header{"H": {"1"}},
		trailer: http.Header{"Grpc-Status": {"9"}, "Grpc-Message": {"100%25 %C3%BC"}, "T": {"3"}}, noAnswer: true},
	{name: "error at once", header: http.Header{"Grpc-Status": {"8"}, "Grpc-Message": {"full"}, "Grpc-Status-Details-Bin": {"CAgSBGZ1bGw"}, "T": {"3"}}, noAnswer: true},
	{name: "a code of no RFC", header: http.Header{"Grpc-Status": {"42"}, "Grpc-Message": {"?"}}, noAnswer: true},
	{name: "no timeout", trailer: http.Header{"Grpc-Status": {"0"}}},
}

// headerExceptions are the fields that grpc-go writes itself.
var headerExceptions = map[string]struct {
	why string
	is  func(direct, proxied string) bool
}{
	"driver: user-agent":           {"grpc-go writes its own", func(_, proxied string) bool { return strings.Contains(proxied, "grpc-go/") }},
	"driver: grpc-accept-encoding": {"grpc-go names what it can read", func(_, proxied string) bool { return strings.HasPrefix(proxied, `["gzip`) }},
	"driver: grpc-timeout":         {"another unit, less the time spent here", sameTimeout},
	"caller: grpc-message":         {"grpc-go writes an empty one, too", func(direct, proxied string) bool { return direct == "" && proxied == `[""]` }},
	"driver: padded-bin":           {"the same bytes, base64 without padding", sameBytes},
	"caller: t-bin":                {"the same bytes, base64 without padding", sameBytes},
}

// sameTimeout tells whether the proxied timeout is the direct one, less at most a second.
func sameTimeout(direct, proxied string) bool {
	a, b := timeout(direct), timeout(proxied)
	return b > 0 && b <= a && a-b < time.Second
}

func timeout(field string) time.Duration {
	field = strings.Trim(field, `[]"`)
	if field == "" {
		return 0
	}
	units := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}
	n, err := strconv.ParseInt(field[:len(field)-1], 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n) * units[field[len(field)-1]]
}

func sameBytes(direct, proxied string) bool {
	trim := func(s string) string { return strings.TrimRight(strings.Trim(s, `[]"`), "=") }
	_, err := base64.RawStdEncoding.DecodeString(trim(direct))
	return err == nil && trim(direct) == trim(proxied)
}

// compareHeaders makes each call both ways and lists every header field.
func compareHeaders(ctx context.Context, folder, program string) ([]headerRow, error) {
	d := &plainDriver{seen: make(chan map[string]string, 1)}
	socket := filepath.Join(folder, "plain.sock")
	stopDriver, err := d.serve(socket)
	if err != nil {
		return nil, err
	}
	defer stopDriver()
	proxied, stop, err := startProxy(ctx, folder, "plain-proxied", program, socket)
	if err != nil {
		return nil, err
	}
	defer stop()
	var rows []headerRow
	for _, c := range headerCases {
		d.answer.Store(&c)
		one, err := d.call(ctx, socket, c)
		if err != nil {
			return nil, fmt.Errorf("%s, directly: %w", c.name, err)
		}
		other, err := d.call(ctx, proxied, c)
		if err != nil {
			return nil, fmt.Errorf("%s, through the proxy: %w", c.name, err)
		}
		rows = append(rows, headerRows(c.name, one, other)...)
	}
	return rows, nil
}

func headerRows(name string, direct, proxied map[string]string) []headerRow {
	fields := maps.Clone(direct)
	maps.Copy(fields, proxied)
	var rows []headerRow
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		r := headerRow{call: name, field: field, direct: direct[field], proxied: proxied[field]}
		if e, ok := headerExceptions[field]; ok && r.direct != r.proxied && e.is(r.direct, r.proxied) {
			r.exception = e.why
		}
		rows = append(rows, r)
	}
	return rows
}

// printHeaders writes the fields that differ, and how many do not. It returns
// the number of faults.
func printHeaders(out io.Writer, rows []headerRow) (faults int) {
	fmt.Fprintf(out, "\nHeader fields as HTTP/2 shows them, with no gRPC library at either end:\n")
	same, told := 0, map[string]bool{}
	for _, r := range rows {
		switch {
		case r.direct == r.proxied:
			same++
		case r.fault():
			faults++
			fmt.Fprintf(out, "  !  %s: %s: directly %s, through the proxy %s\n", r.call, r.field, orNothing(r.direct), orNothing(r.proxied))
		case !told[r.field]: // once for all calls
			told[r.field] = true
			fmt.Fprintf(out, "  named exception: %s: %s: directly %s, through the proxy %s\n", r.field, r.exception, orNothing(r.direct), orNothing(r.proxied))
		}
	}
	fmt.Fprintf(out, "  =  %d fields of %d calls are the same\n", same, len(headerCases))
	return faults
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// frame puts gRPC's five bytes before a message.
func frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// note lists header fields as facts.
func note(facts map[string]string, end string, h http.Header) {
	for key, values := range h {
		key = strings.ToLower(key)
		if key == "content-length" || key == "date" {
			continue // net/http's, not gRPC's
		}
		facts[end+": "+key] = fmt.Sprintf("%q", values)
	}
}

// call makes the call on a socket, and returns what caller and driver saw.
func (d *plainDriver) call(ctx context.Context, socket string, c headerCase) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	conn := &http.Transport{DisableCompression: true, Protocols: unencryptedHTTP2(), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer conn.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+plainMethod, strings.NewReader(string(frame([]byte("ask")))))
	if err != nil {
		return nil, err
	}
	req.ContentLength = -1
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "User-Agent": {"a-sceptic/1.0"}}
	maps.Copy(req.Header, c.send)
	resp, err := conn.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var facts map[string]string
	select {
	case facts = <-d.seen:
	case <-ctx.Done():
		return nil, fmt.Errorf("the driver has not seen the call: %w", ctx.Err())
	}
	facts["caller: :status"], facts["caller: body"] = resp.Status, fmt.Sprintf("%x", body)
	note(facts, "caller", resp.Header)
	note(facts, "caller", resp.Trailer)
	return facts, nil
}

// answerProbe answers what the proxy asks at its start.
func answerProbe(path string) []byte {
	if path == spec.Identity_GetPluginInfo_FullMethodName {
		b, err := proto.Marshal(&spec.GetPluginInfoResponse{Name: "plain.csi-fencepost.io", VendorVersion: "1"})
		if err != nil {
			panic(err) // it is written out above
		}
		return b
	}
	return nil
}

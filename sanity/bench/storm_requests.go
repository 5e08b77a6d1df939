package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// requestLog is what one account asked of the API server, watches left out.
type requestLog struct {
	kinds tally
	at    []time.Time // when each request came in
}

// requestsOf reads the audit log, with what was rotated out of it, for the
// requests of a namespace's service accounts that came in between two moments.
func requestsOf(path, namespace string, from, to time.Time) (*requestLog, error) {
	files, err := filepath.Glob(strings.TrimSuffix(path, ".log") + "*.log")
	if err != nil {
		return nil, err
	}
	time.Sleep(auditSettle)
	l := &requestLog{kinds: tally{}}
	for _, name := range files {
		if err := l.read(name, "system:serviceaccount:"+namespace+":", from, to); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(l.at, time.Time.Compare)
	return l, nil
}

func (l *requestLog) read(name, account string, from, to time.Time) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil // what is left is half a line
		} else if err != nil {
			return err
		}
		if !strings.Contains(line, account) {
			continue
		}
		var e struct {
			auditEvent
			At time.Time `json:"requestReceivedTimestamp"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if e.Verb == "watch" || !strings.HasPrefix(e.User.Username, account) || e.At.Before(from) || e.At.After(to) {
			continue
		}
		l.kinds[e.what()]++
		l.at = append(l.at, e.At)
	}
}

// peak is the greatest number of requests within any window of that length.
func peak(at []time.Time, window time.Duration) (most int) {
	first := 0
	for last := range at {
		for at[last].Sub(at[first]) >= window {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// workerTime is how external-attacher's workers spent their time in calls for
// volumes, by the calls' status codes.
type workerTime map[string]callTime

type callTime struct {
	calls   int
	seconds float64
	quick   int // that took at most 0.1 s, the least that the attacher tells apart
}

var operation = regexp.MustCompile(`^csi_sidecar_operations_seconds_(count|sum|bucket)\{.*grpc_status_code="(\w+)".*method_name="/csi\.v1\.Controller/Controller(?:Unp|P)ublishVolume".*\} (\S+)$`)

// readWorkerTime reads it from external-attacher's metrics.
func readWorkerTime(ctx context.Context, url string) (workerTime, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return parseWorkerTime(resp.Body)
}

func parseWorkerTime(text io.Reader) (workerTime, error) {
	found, lines := workerTime{}, bufio.NewScanner(text)
	for lines.Scan() {
		m := operation.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", lines.Text(), err)
		}
		t := found[m[2]]
		switch {
		case m[1] == "count":
			t.calls += int(value)
		case m[1] == "sum":
			t.seconds += value
		case strings.Contains(m[0], `,le="0.1"}`):
			t.quick += int(value)
		}
		found[m[2]] = t
	}
	return found, lines.Err()
}

// since is what came on top of an earlier reading.
func (t workerTime) since(before workerTime) workerTime {
	more := workerTime{}
	for code, now := range t {
		now.calls -= before[code].calls
		now.seconds -= before[code].seconds
		now.quick -= before[code].quick
		if now.calls > 0 {
			more[code] = now
		}
	}
	return more
}

// waiting is what the calls cost that were answered with anything but yes.
func (t workerTime) waiting() (all callTime, codes string) {
	var list []string
	for code, x := range t {
		if code == "OK" {
			continue
		}
		all = callTime{calls: all.calls + x.calls, seconds: all.seconds + x.seconds, quick: all.quick + x.quick}
		list = append(list, fmt.Sprintf("%s × %d", code, x.calls))
	}
	slices.Sort(list)
	return all, strings.Join(list, ", ")
}

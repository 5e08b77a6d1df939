package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sort"
	"strings"
	"time"
)

// auditPolicy has the API server write a line for each request of a service
// account, when it is answered.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted, Panic]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
`

// auditLog is the API server's.
type auditLog struct {
	path string
	read int64 // so far
}

// auditEvent is one request.
type auditEvent struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
}

// auditSettle is longer than the API server takes to write a line after it has
// answered.
const auditSettle = 300 * time.Millisecond

// next counts the requests of a namespace's service accounts since the last
// call.
func (l *auditLog) next(namespace string) (tally, error) {
	time.Sleep(auditSettle)
	file, err := os.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return tally{}, nil // nothing was asked yet
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(l.read, io.SeekStart); err != nil {
		return nil, err
	}
	found := tally{}
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return found, nil // what is left is half a line
		} else if err != nil {
			return nil, err
		}
		l.read += int64(len(line))
		var e auditEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, fmt.Errorf("%s: %w", l.path, err)
		}
		if strings.HasPrefix(e.User.Username, "system:serviceaccount:"+namespace+":") {
			found[e.what()]++
		}
	}
}

func (e auditEvent) what() string {
	what := e.Verb + " " + e.Object.Resource
	if e.Object.Subresource != "" {
		what += "/" + e.Object.Subresource
	}
	return what
}

// tally counts requests by verb and resource.
type tally map[string]float64

func (t tally) add(other tally) {
	for what, n := range other {
		t[what] += n
	}
}

var readVerbs = []string{"get", "list", "watch"}

// of divides the tally among n cycles: reads, writes, and each by its kind. A
// watch is not a request of a cycle: it is made again every few minutes.
func (t tally) of(n int) (reads, writes float64, kinds string) {
	var list []string
	for what, count := range t {
		verb, _, _ := strings.Cut(what, " ")
		each := count / float64(n)
		switch {
		case verb == "watch":
			continue
		case slices.Contains(readVerbs, verb):
			reads += each
		default:
			writes += each
		}
		list = append(list, fmt.Sprintf("%s × %.3g", what, each))
	}
	sort.Strings(list)
	return reads, writes, strings.Join(list, ", ")
}

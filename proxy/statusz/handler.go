package statusz

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/csi-fencepost/csi-fencepost/fence/printable"
)

const (
	// keepFor is how long a State is shown again to others who ask.
	keepFor = 2 * time.Second
	// collectTimeout bounds a collection; what is not known by then is missing.
	collectTimeout = 5 * time.Second

	minRefresh, maxRefresh = 2, 3600 // seconds
)

// Collect puts a State together. It must return when ctx ends, with what it has.
type Collect func(ctx context.Context) *State

// Handler serves the page and the JSON. One Collect is under way at a time.
type Handler struct {
	collect Collect

	mu    sync.Mutex
	last  *State
	until time.Time
}

// NewHandler is a Handler that asks collect when it is asked.
func NewHandler(collect Collect) *Handler { return &Handler{collect: collect} }

// state is the State of now, or of two seconds ago. It is shared: do not change
// it.
func (h *Handler) state(ctx context.Context) *State {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last != nil && time.Now().Before(h.until) {
		return h.last
	}
	// Whoever asks first may go; others wait for the answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), collectTimeout)
	defer cancel()
	h.last = h.collect(ctx)
	h.last.bound()
	h.until = time.Now().Add(keepFor)
	return h.last
}

// ServeHTTP answers GET and HEAD.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this page is only read: GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	query := r.URL.Query()
	format := query.Get("format")
	if strings.HasSuffix(r.URL.Path, ".json") {
		format = "json"
	}
	if format != "" && format != "html" && format != "json" {
		http.Error(w, "format is html or json", http.StatusBadRequest)
		return
	}
	refresh, err := seconds(query.Get("refresh"))
	if err != "" {
		http.Error(w, err, http.StatusBadRequest)
		return
	}
	s := h.state(r.Context())
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Content-Security-Policy", policy())
	if format == "json" {
		header.Set("Content-Type", "application/json")
		// A State is texts, numbers and times: nothing in it can fail to be JSON.
		document, _ := json.MarshalIndent(s, "", "  ")
		_, _ = w.Write(append(printable.JSON(document), '\n')) // who went away does not want it
		return
	}
	header.Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(HTML(s, refresh))
}

// seconds reads the parameter refresh; 0: the page stays as it is.
func seconds(text string) (n int, wrong string) {
	if text == "" {
		return 0, ""
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < minRefresh || n > maxRefresh {
		return 0, "refresh is a number of seconds, 2 to 3600"
	}
	return n, ""
}

// policy forbids the browser everything but the page's own style.
var policy = sync.OnceValue(func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
})

package statusz

import (
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// filled is a State with every field set: each text to s, each list to one
// element, each number to 3.
func filled(s string) *State {
	state := New(time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC))
	fill(reflect.ValueOf(state).Elem(), s)
	state.At = time.Date(2026, 11, 21, 17, 0, 0, 0, time.UTC)
	return state
}

func fill(v reflect.Value, s string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	case reflect.Bool:
		v.SetBool(false)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), s)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 11, 21, 16, 0, 0, 0, time.UTC)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), s)
		}
	default:
		panic("a State has a " + v.Kind().String() + ", which the tests do not fill")
	}
}

// skeleton is a document's elements and attributes, without its texts.
func skeleton(t testing.TB, page []byte) string {
	t.Helper()
	var out strings.Builder
	for tokens := html.NewTokenizer(strings.NewReader(string(page))); ; {
		switch kind := tokens.Next(); kind {
		case html.ErrorToken:
			return out.String()
		case html.TextToken:
		default:
			token := tokens.Token()
			if kind == html.CommentToken {
				t.Errorf("a comment is in the page: %q", token.Data)
			}
			out.WriteString(kind.String() + " " + token.Data)
			for _, a := range token.Attr {
				out.WriteString(" " + a.Key)
				if a.Key == "href" && !strings.HasPrefix(a.Val, "?") && !strings.HasPrefix(a.Val, "https://") || strings.HasPrefix(a.Key, "on") || a.Key == "src" || a.Key == "style" {
					t.Errorf("the page has %s=%q", a.Key, a.Val)
				}
			}
			out.WriteByte('\n')
		}
	}
}

var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='x`, `</style><script>`, `<!--`, `]]>`, `&lt;script&gt;`,
	`javascript:alert(1)`, `https://"><script>`, "a\x00b\x1b[31m", "\u202egnp.exe", "\xff\xfe<", "</title><script>", "`", "=", "csi-fencepost: <b> To unblock: <i> [<u>",
}

func TestNothingThatOthersWroteBecomesMarkup(t *testing.T) {
	for _, s := range hostile {
		wantSame(t, s)
	}
}

func FuzzNothingThatOthersWroteBecomesMarkup(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(wantSame)
}

// Whatever is asked: nothing of the question is in the answer, which is the page with no refresh but one
// of 2 to 3600 seconds, the JSON, or why it is neither; and whatever is served, the browser is told to run
// and to keep nothing.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "/statusz", "refresh=10")
	f.Add("HEAD", "/statusz.json", "format=html&refresh=2")
	f.Add("GET", "/statusz", "format=json&refresh=+7")
	f.Add("GET", "/statusz", "refresh=1&refresh=5")
	f.Add("GET", "/statusz", "refresh=3601;%zz")
	f.Add("GET", "/x.json", "refresh=\"><script>alert(1)</script>&format=<b>")
	f.Add("POST", "/statusz", "format=xml")
	h := NewHandler(func(context.Context) *State { return filled("shown") })
	plain, refreshed := skeleton(f, HTML(filled("shown"), 0)), skeleton(f, HTML(filled("shown"), 9))
	f.Fuzz(func(t *testing.T, method, path, query string) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Method, r.URL.Path, r.URL.RawQuery = method, path, query
		h.ServeHTTP(w, r)
		body, header := w.Body.String(), w.Header()
		if w.Code != http.StatusOK {
			if body != "format is html or json\n" && body != "refresh is a number of seconds, 2 to 3600\n" && (body != "this page is only read: GET or HEAD\n" || method == "GET") {
				t.Errorf("%d %q", w.Code, body)
			}
			return
		}
		if method != "GET" && method != "HEAD" || header.Get("Cache-Control") != "no-store" || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Content-Security-Policy") != policy() {
			t.Errorf("%q is answered with %v", method, header)
		}
		if header.Get("Content-Type") == "application/json" {
			var s State
			if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || s.APIVersion == "" {
				t.Errorf("%v: %s", err, body)
			}
			return
		}
		n := 0
		if parts := regexp.MustCompile(`<meta http-equiv="refresh" content="([0-9]+)">`).FindStringSubmatch(body); parts != nil {
			n, _ = strconv.Atoi(parts[1])
			if n < 2 || n > 3600 || !strings.Contains(query, strconv.Itoa(n)) {
				t.Errorf("%q refreshes after %d seconds", query, n)
			}
		}
		if got := skeleton(t, w.Body.Bytes()); got != map[bool]string{true: refreshed, false: plain}[n > 0] {
			t.Errorf("%q changes the page's structure:\n%s", query, got)
		}
	})
}

// wantSame fails unless a page full of s has the elements and attributes of a
// page full of a harmless text of the same kind.
func wantSame(t *testing.T, s string) {
	if s == "" {
		return // an empty text leaves whole elements out
	}
	harmless := "x"
	if strings.HasPrefix(s, "https://") {
		harmless = "https://x"
	}
	if _, text, found := strings.Cut(s, "csi-fencepost: "); found || text == "" {
		text, _, _ = cutLast(text, " [")
		if _, _, split := strings.Cut(text, " To unblock: "); split {
			harmless = "csi-fencepost: x To unblock: y [z"
		}
	}
	if !found(s) && strings.Contains(s, " To unblock: ") {
		return
	}
	page := HTML(filled(s), 0)
	if got, want := skeleton(t, page), skeleton(t, HTML(filled(harmless), 0)); got != want {
		t.Errorf("%q changes the page's structure:\n%s\nwant\n%s", s, got, want)
	}
}

func found(s string) bool { return strings.Contains(s, "csi-fencepost: ") }

// TestOnlyConstantsBecomeMarkup reads the package: a conversion to markup could
// let anything through.
func TestOnlyConstantsBecomeMarkup(t *testing.T) {
	files := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	writers := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch f := call.Fun.(type) {
			case *ast.Ident:
				if f.Name == "markup" {
					t.Errorf("%s: a conversion to markup", files.Position(call.Pos()))
				}
			case *ast.SelectorExpr:
				if f.Sel.Name == "WriteString" || f.Sel.Name == "WriteByte" || f.Sel.Name == "WriteRune" {
					writers++
					if !strings.HasSuffix(name, "page.go") {
						t.Errorf("%s: the page is written past raw and text", files.Position(call.Pos()))
					}
				}
			}
			return true
		})
	}
	if writers == 0 {
		t.Error("no writer was found: this test looks for the wrong names")
	}
}

func TestThePageSpellsOutWhatMatters(t *testing.T) {
	s := sample()
	page := string(HTML(s, 0))
	for _, want := range []string{`<meta name="viewport" content="width=device-width,initial-scale=1">`, "prefers-color-scheme:dark", "1 call waits, 1 node suspected, 1 node fenced, 1 brake holds",
		"To unblock:</strong> turn the node off", "waits: HolderStale", "not fenced: Cordoned", "does not answer", "never asked", "took over", "would refuse",
		"What was asked and answered: 1 step", "Audit trail: 1 entry", "100s ago", `href="https://github.com/`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "http-equiv") {
		t.Error("the page has a script, or refreshes unasked")
	}
	quiet := New(s.At)
	quiet.Ready, quiet.Mode = true, "Enforce"
	if page := string(HTML(quiet, 0)); !strings.Contains(page, "Nothing waits.") {
		t.Error("a quiet night is not said to be one")
	}
	quiet.Nodes = []Node{{Name: "n1", State: Lifting, Evidence: []Evidence{{Kind: "StorageFence", Phase: "Lifting"}}}}
	if page := string(HTML(quiet, 0)); !strings.Contains(page, ">given its access back<") || !strings.Contains(page, ">being lifted<") || strings.Contains(page, "node fenced") {
		t.Error("a storage fence that is being lifted is not said to be so")
	}
	quiet.Ready, quiet.Checks = false, []Check{{Name: "driver", Why: "it has not answered yet"}}
	if page := string(HTML(quiet, 5)); !strings.Contains(page, "Not ready.</strong> driver: it has not answered yet") || !strings.Contains(page, `http-equiv="refresh" content="5"`) {
		t.Error("what is not ready is not said, or the page does not refresh when asked to")
	}
}

// TestTheJSONKeepsItsNames: programs of others read it.
func TestTheJSONKeepsItsNames(t *testing.T) {
	text, err := json.Marshal(filled("x"))
	if err != nil {
		t.Fatal(err)
	}
	values := regexp.MustCompile(`"(x|2026[^"]*)"|:3\b|:false`)
	got := strings.Trim(values.ReplaceAllString(string(text), ":"), " ")
	want := `{"apiVersion"::,"kind"::,"at"::,"driver"::,"version"::,"host"::,"mode"::,"leader"::,"started"::,"ready":,"checks":[{"name"::,"why"::}],` +
		`"waiting":[{"call"::,"volume"::,"pv"::,"node"::,"nodeID"::,"holder"::,"reason"::,"text"::,"runbook"::,"since"::,"times":}],"underWay":[:],` +
		`"nodes":[{"name"::,"state"::,"silentSeconds":,"power":{"state"::,"why"::,"ageSeconds":},"awaited"::,"proof"::,"volumes":[:],"evidence":[{"kind"::,"source"::,"detail"::,"phase"::,"why"::,"at"::,` +
		`"steps":[{"agent"::,"action"::,"state"::,"detail"::,"error"::,"at"::,"tookMS":}]}],"audit":[{"at"::,"actor"::,"action"::,"detail"::}]}],"watched":,` +
		`"polling":{"nodes":,"periodMS":,"oldestMS":},"brakes":[{"node"::,"reason"::,"text"::}],"agents":[{"name"::,"proves"::,"level":,"state"::,"last":[{"node"::,"action"::,"result"::,"detail"::,"error"::,"at"::,"tookMS":}]}],` +
		`"decisions":[{"call"::,"volume"::,"pv"::,"node"::,"nodeID"::,"holder"::,"verdict"::,"reason"::,"text"::,"from":[:],"first"::,"last"::,"times":}],"notes":[:]}`
	if strings.ReplaceAll(got, "::", ":") != strings.ReplaceAll(want, "::", ":") {
		t.Errorf("the fields are\n%s\nwant\n%s", got, want)
	}
}

func ask(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestNothingIsComputedUnlessAskedAndNotTwiceInTwoSeconds(t *testing.T) {
	collected := 0
	h := NewHandler(func(ctx context.Context) *State {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a collection has no time limit")
		}
		collected++
		time.Sleep(50 * time.Millisecond)
		return sample()
	})
	if collected != 0 {
		t.Fatal("something was collected although nobody asked")
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { ask(h, http.MethodGet, "/statusz") })
	}
	all.Wait()
	if collected != 1 {
		t.Errorf("50 who asked at once had it collected %d times", collected)
	}
	time.Sleep(keepFor)
	ask(h, http.MethodGet, "/statusz")
	if collected != 2 {
		t.Errorf("later it was collected %d times, want 2: the page would be old", collected)
	}
}

func TestTheBrowserIsForbiddenEverythingButTheStyle(t *testing.T) {
	h := NewHandler(func(context.Context) *State { return sample() })
	w := ask(h, http.MethodGet, "/statusz")
	csp := w.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(csp, "default-src 'none'; style-src 'sha256-") || strings.Contains(csp, "unsafe") || w.Header().Get("X-Content-Type-Options") != "nosniff" ||
		w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("headers %v", w.Header())
	}
	for path, kind := range map[string]string{"/statusz?format=json": "application/json", "/statusz.json": "application/json", "/statusz?format=html": "text/html; charset=utf-8"} {
		if w := ask(h, http.MethodGet, path); w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind {
			t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Content-Type"))
		}
	}
	for path, code := range map[string]int{"/statusz?format=xml": 400, "/statusz?refresh=1": 400, "/statusz?refresh=x%22%3E": 400, "/statusz?refresh=10": 200} {
		if w := ask(h, http.MethodGet, path); w.Code != code {
			t.Errorf("%s: %d, want %d", path, w.Code, code)
		}
	}
	if w := ask(h, http.MethodPost, "/statusz"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestLongListsAreCutAndSaySo(t *testing.T) {
	s := New(time.Now())
	for range MaxShown + 7 {
		s.Waiting = append(s.Waiting, Waiting{Volume: "v"})
	}
	h := NewHandler(func(context.Context) *State { return s })
	var got State
	if err := json.Unmarshal(ask(h, http.MethodGet, "/statusz.json").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Waiting) != MaxShown || len(got.Notes) != 1 || !strings.HasPrefix(got.Notes[0], "7 more waiting calls") {
		t.Errorf("%d are shown, notes %q", len(got.Waiting), got.Notes)
	}
}

// Who asks with curl has a terminal.
func TestTheJSONIsNoMoreThanTextAndSaysTheSame(t *testing.T) {
	const evil = "a\x1b[2J\u202eb\u009bc"
	h := NewHandler(func(context.Context) *State {
		s := New(time.Now())
		s.Driver = evil
		return s
	})
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/statusz.json", nil))
	var back State
	if err := json.Unmarshal(answer.Body.Bytes(), &back); err != nil || back.Driver != evil {
		t.Errorf("%v: %q", err, back.Driver)
	}
	if strings.ContainsAny(answer.Body.String(), "\x1b\u202e\u009b") {
		t.Errorf("a terminal would act on %q", answer.Body.String())
	}
}

func TestNothingOnThePageTurnsTheTextAround(t *testing.T) {
	page := string(HTML(filled("a\x1b[2J\u202eb\u009bc\xff"), 0))
	if strings.ContainsAny(page, "\x1b\u202e\u009b") || !strings.Contains(page, "a [2J b c\uFFFD") {
		t.Error("what does not print is on the page")
	}
}

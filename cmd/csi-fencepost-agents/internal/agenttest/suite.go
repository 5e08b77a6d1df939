package agenttest

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
)

// World is a platform with the machine that is meant, and others.
type World struct {
	Agent  *contract.Agent
	Server *Server
	Power  *Power
	// Parameters that work, the machine's name among them.
	Parameters map[string]string
	// Identities that the agent has to print of it.
	Identities []string
	// UUID is the machine's; empty: the platform says none.
	UUID string
	// Names is the parameter that names the machine, Missing a value that names none.
	Names, Missing string
	// Elsewhere tells that the platform says where to ask on.
	Elsewhere bool
	// Secret is the parameter that holds a secret.
	Secret string
	// SentOff and SentOn are what the API has to be told.
	SentOff, SentOn string
	// Throttled is how the API says that it is asked too often.
	Throttled http.Handler
}

// Suite holds the agent against the rules. States are those of the platform by the exit code of
// status; the world is made anew for each test.
func Suite(t *testing.T, world func(t testing.TB) *World, states map[string]int) {
	t.Run("a state is on or off only if it is nothing else", func(t *testing.T) { statesAreRead(t, world(t), states) })
	t.Run("off is commanded and waited for", func(t *testing.T) { offIsWaitedFor(t, world(t)) })
	t.Run("another machine is not touched", func(t *testing.T) { othersAreLeft(t, world(t)) })
	t.Run("not found is an error", func(t *testing.T) { notFoundIsAnError(t, world(t)) })
	t.Run("a wrong secret is an error and not shown", func(t *testing.T) { wrongSecretIsAnError(t, world(t)) })
	t.Run("no error shows the beginning of a secret", func(t *testing.T) { nothingOfASecretIsShown(t, world(t)) })
	t.Run("no error shows what a request said who asks by", func(t *testing.T) { credentialsAreNotShown(t, world(t)) })
	t.Run("an answer without an end is an error", func(t *testing.T) { endlessIsAnError(t, world(t)) })
	t.Run("nothing is sent to whoever has another certificate", func(t *testing.T) { othersAreNotAsked(t, world(t)) })
	t.Run("who is asked too often answers nothing", func(t *testing.T) { throttledIsAnError(t, world(t)) })
}

func with(parameters map[string]string, more ...string) map[string]string {
	parameters = maps.Clone(parameters)
	for i := 0; i < len(more); i += 2 {
		parameters[more[i]] = more[i+1]
	}
	return parameters
}

func statesAreRead(t *testing.T, w *World, states map[string]int) {
	words := map[int]string{0: "Status: ON", 2: "Status: OFF"}
	codes := map[int]bool{}
	for _, state := range slices.Sorted(maps.Keys(states)) {
		w.Power.Set(state)
		want := states[state]
		codes[want] = true
		got := Run(t, w.Agent, "status", w.Parameters)
		if got.Code != want || !strings.Contains(got.Out, words[want]) || (want == 1) != (got.Out == "") || (want == 1) != (got.Err != "") {
			t.Errorf("%s: exit %d, %q, %q; want %d", state, got.Code, got.Out, got.Err, want)
		}
		if want == 1 {
			continue
		}
		for _, id := range w.Identities {
			if !strings.Contains(got.Out, "\nIdentity: "+id+"\n") {
				t.Errorf("%s: %q does not say that it is %s", state, got.Out, id)
			}
		}
	}
	if !codes[0] || !codes[1] || !codes[2] {
		t.Errorf("the table has only the exit codes %v", codes)
	}
}

func offIsWaitedFor(t *testing.T, w *World) {
	w.Power.Set(w.Power.On)
	for _, step := range []struct {
		action, sent string
		code         int
	}{{"off", w.SentOff, 2}, {"off", "", 2}, {"on", w.SentOn, 0}, {"on", "", 0}, {"reboot", w.SentOff + " " + w.SentOn, 0}} {
		before := len(w.Power.Sent())
		if got := Run(t, w.Agent, step.action, w.Parameters); got.Code != 0 || got.Err != "" {
			t.Fatalf("%s: exit %d, %s", step.action, got.Code, got.Err)
		}
		if sent := strings.Join(w.Power.Sent()[before:], " "); sent != step.sent {
			t.Errorf("%s sent %q, want %q", step.action, sent, step.sent)
		}
		if got := Run(t, w.Agent, "status", w.Parameters); got.Code != step.code {
			t.Errorf("after %s: exit %d, %s; want %d", step.action, got.Code, got.Err, step.code)
		}
	}
	// A machine that stays on its way is not off.
	w.Power.Set(w.Power.On)
	w.Power.Off = w.Power.Between
	if got := Run(t, w.Agent, "off", with(w.Parameters, "timeout", "1")); got.Code != 1 || !strings.Contains(got.Err, "not seen to be done") {
		t.Errorf("off of a machine that stays as it was: exit %d, %s", got.Code, got.Err)
	}
}

func othersAreLeft(t *testing.T, w *World) {
	w.Power.Set(w.Power.On)
	const another = "99999999-1111-4222-8333-444444444444"
	for _, action := range []string{"status", "off", "on", "reboot"} {
		got := Run(t, w.Agent, action, with(w.Parameters, "uuid", another))
		if got.Code != 1 || !strings.Contains(got.Err, "UUID") {
			t.Errorf("%s of a machine with another UUID: exit %d, %s", action, got.Code, got.Err)
		}
	}
	if sent := w.Power.Sent(); len(sent) > 0 {
		t.Errorf("sent %q", sent)
	}
	if w.UUID == "" {
		return
	}
	if got := Run(t, w.Agent, "status", with(w.Parameters, "uuid", strings.ToUpper(w.UUID))); got.Code != 0 {
		t.Errorf("with its own UUID: exit %d, %s", got.Code, got.Err)
	}
	if got := Run(t, w.Agent, "status", with(w.Parameters, "uuid", "none")); got.Code != 0 || strings.Contains(got.Out, "Identity: "+w.UUID+"\n") {
		t.Errorf("where its UUID is not looked at: exit %d, %q, %s", got.Code, got.Out, got.Err)
	}
}

func notFoundIsAnError(t *testing.T, w *World) {
	for _, action := range []string{"status", "off", "on"} {
		got := Run(t, w.Agent, action, with(w.Parameters, w.Names, w.Missing))
		where := strings.TrimPrefix(w.Server.URL, "https://")
		if got.Code != 1 || got.Out != "" || !strings.Contains(got.Err, w.Missing) || !strings.Contains(got.Err, where) {
			t.Errorf("%s: exit %d, %q, %s; want an error that names %s and %s", action, got.Code, got.Out, got.Err, w.Missing, where)
		}
	}
	if sent := w.Power.Sent(); len(sent) > 0 {
		t.Errorf("sent %q", sent)
	}
}

func wrongSecretIsAnError(t *testing.T, w *World) {
	w.Power.Set(w.Power.Off)
	for _, action := range []string{"status", "off", "monitor", "list"} {
		got := Run(t, w.Agent, action, with(w.Parameters, w.Secret, "wrong-secret", "timeout", "2"))
		if got.Code != 1 || got.Err == "" || got.Out != "" {
			t.Errorf("%s: exit %d, %q, %q", action, got.Code, got.Out, got.Err)
		}
		if strings.Contains(got.Out+got.Err, "wrong-secret") {
			t.Errorf("%s shows the secret: %q, %q", action, got.Out, got.Err)
		}
	}
}

// nothingOfASecretIsShown plays an answer that quotes the secret and is cut in the middle of it, by
// the agent where a message bears no more, or by who answers.
func nothingOfASecretIsShown(t *testing.T, w *World) {
	const before = "~~ "
	secret := w.Parameters[w.Secret]
	quotes := func(pad int, secret string, ends bool) http.Handler {
		return http.HandlerFunc(func(hw http.ResponseWriter, _ *http.Request) {
			text := strings.Repeat("x", pad) + before + secret
			hw.Header().Set("Content-Type", "text/plain")
			if !ends {
				hw.Header().Set("Content-Length", strconv.Itoa(len(text)+100))
			}
			hw.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(hw, text)
			if !ends {
				_ = http.NewResponseController(hw).Flush()
				panic(http.ErrAbortHandler)
			}
		})
	}
	check := func(what string, shown int) {
		got := Run(t, w.Agent, "status", with(w.Parameters, "timeout", "2"))
		if got.Code != 1 {
			t.Errorf("%s: exit %d, %s", what, got.Code, got.Err)
		}
		if strings.Contains(got.Err, before+secret[:shown]) {
			t.Errorf("%s: the first %d bytes of the secret are shown: %s", what, shown, got.Err)
		}
	}
	for _, n := range []int{1, 2, 5, min(len(secret)-1, 200)} {
		w.Server.Refuse(-1, quotes(300-len(before)-n, secret, true))
		check("a long answer", n)
	}
	for _, n := range []int{2, min(len(secret)-1, 200)} {
		w.Server.Refuse(-1, quotes(10, secret[:n], false))
		check("an answer that ends early", n)
	}
}

// credentialsAreNotShown plays a refusal that quotes what was sent, in any of the forms in which
// these platforms say no. That may be no parameter, as a token that was fetched.
func credentialsAreNotShown(t *testing.T, w *World) {
	for _, form := range []struct {
		code int
		text string
	}{
		{http.StatusUnauthorized, "%s is wrong"},
		{http.StatusUnauthorized, `{"error": {"code": "unauthorized", "message": "%s is wrong"}}`},
		{http.StatusForbidden, "<Response><Errors><Error><Code>SignatureDoesNotMatch</Code><Message>%s is wrong</Message></Error></Errors></Response>"},
		{http.StatusInternalServerError, `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/"><Body><Fault><faultcode>Server</faultcode><faultstring>%s is wrong</faultstring></Fault></Body></Envelope>`},
	} {
		w.Server.Echo(func(hw http.ResponseWriter, credentials string) {
			hw.WriteHeader(form.code)
			fmt.Fprintf(hw, form.text, credentials)
		})
		got := Run(t, w.Agent, "status", with(w.Parameters, "timeout", "2"))
		echoed := w.Server.Echoed()
		if got.Code != 1 || len(echoed) == 0 {
			t.Errorf("exit %d, %s; %d credentials came", got.Code, got.Err, len(echoed))
		}
		for _, one := range echoed {
			if strings.Contains(got.Err, one) {
				t.Errorf("%s is shown: %s", one, got.Err)
			}
		}
	}
}

func endlessIsAnError(t *testing.T, w *World) {
	for _, action := range []string{"status", "list"} {
		e := &Endless{Code: http.StatusCreated}
		w.Server.Refuse(-1, e)
		got := Run(t, w.Agent, action, w.Parameters)
		if got.Code != 1 || got.Out != "" || !strings.Contains(got.Err, "is longer than 67108864 bytes") {
			t.Errorf("%s: exit %d, %q, %.300s", action, got.Code, got.Out, got.Err)
		}
		e.Judge(t, action)
	}
	e := &Endless{Code: http.StatusUnauthorized}
	w.Server.Refuse(-1, e)
	if got := Run(t, w.Agent, "status", w.Parameters); got.Code != 1 {
		t.Errorf("of a refusal: exit %d, %.300s", got.Code, got.Err)
	}
	e.Judge(t, "of a refusal")
}

// Endless answers on and on.
type Endless struct {
	Code int
	sent atomic.Int64
	came atomic.Int64
}

func (e *Endless) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	e.came.Add(1)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Code)
	for piece := []byte(strings.Repeat(" ", 1<<20)); e.sent.Load() < 1<<30; e.sent.Add(int64(len(piece))) {
		if _, err := w.Write(piece); err != nil {
			return
		}
	}
}

// Judge is after a run: little more was taken of each answer than there may be.
func (e *Endless) Judge(t *testing.T, what string) {
	t.Helper()
	if came := e.came.Load(); came == 0 || e.sent.Load() > came*(96<<20) {
		t.Errorf("%s: %d MiB were taken of %d answers", what, e.sent.Load()>>20, came)
	}
}

func othersAreNotAsked(t *testing.T, w *World) {
	for name, parameters := range map[string]map[string]string{
		"another fingerprint": with(w.Parameters, "fingerprint", strings.Repeat("ab", 32), "timeout", "2"),
		"no fingerprint":      with(w.Parameters, "fingerprint", "", "timeout", "2"),
		"half a fingerprint":  with(w.Parameters, "fingerprint", "abcd", "timeout", "2"),
	} {
		for _, action := range []string{"status", "off"} {
			if got := Run(t, w.Agent, action, parameters); got.Code != 1 {
				t.Errorf("%s: %s: exit %d, %q", name, action, got.Code, got.Out)
			}
		}
	}
	if n := w.Server.Requests(); n > 0 {
		t.Errorf("%d requests came", n)
	}
}

func throttledIsAnError(t *testing.T, w *World) {
	w.Power.Set(w.Power.Off)
	w.Server.Refuse(-1, w.Throttled)
	for _, action := range []string{"status", "off"} {
		if got := Run(t, w.Agent, action, with(w.Parameters, "timeout", "1")); got.Code != 1 || got.Out != "" {
			t.Errorf("%s: exit %d, %q", action, got.Code, got.Out)
		}
	}
}

// GoesRound holds an agent against a list without an end: it is an error long before the time is over,
// and nothing of it is printed.
func GoesRound(t *testing.T, w *World) {
	t.Helper()
	before := w.Server.Requests()
	got := Run(t, w.Agent, "list", with(w.Parameters, "timeout", "3"))
	if n := w.Server.Requests() - before; got.Code != 1 || got.Out != "" || n > 10 || !strings.Contains(got.Err, "the list does not end: ") || !strings.Contains(got.Err, "see whether the endpoint is") {
		t.Errorf("exit %d after %d requests, %q, %.300s", got.Code, n, got.Out, got.Err)
	}
}

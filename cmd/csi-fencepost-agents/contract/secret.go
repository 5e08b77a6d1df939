package contract

import (
	"context"
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

const (
	// cut stands where a text was cut. What is before it may be the beginning of a secret.
	cut = "…"
	// maxMessage is far more than the sidecar keeps of an error.
	maxMessage = 16 << 10
	// minBegun is how much of a secret's beginning is taken out at the end of a text of which it is
	// not known whether it was cut: one byte of a secret ends many texts.
	minBegun = 4
)

// Shortened is what a message bears of a text that somebody else wrote. Where it was cut here, or by
// whoever read it, it says so: the beginning of a secret is taken out of what is before that, once all
// is put together.
func Shortened(text string, ended bool) string {
	const most = 300
	if text = strings.TrimSpace(text); len(text) <= most && (ended || text == "") {
		return text
	}
	return strings.TrimSuffix(text[:min(len(text), most)], cut) + cut
}

// Hide has no error of this run show these secrets, which are no parameters: tokens that were fetched.
func Hide(ctx context.Context, secrets ...string) {
	if h, ok := ctx.Value(fetchedKey{}).(*fetched); ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = append(h.all, secrets...)
	}
}

type fetchedKey struct{}

// fetched are the secrets of a run that are no parameters.
type fetched struct {
	mu  sync.Mutex
	all []string
}

func (f *fetched) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

// strike takes the secrets, and what is left of one that was cut in two, out of a text that it makes
// plain, by which one may appear.
func (a *Agent) strike(text string, v Values, fetched []string) string {
	secrets := a.secrets(v, fetched)
	text = struck(text, secrets)
	if len(text) > maxMessage {
		text = text[:maxMessage] + cut
	}
	return struck(plain(struck(text, secrets)), secrets)
}

// secrets are the values that are never shown, also as they are written elsewhere: in a form, a path,
// JSON, or the header of a login. The longest come first: one may be part of another.
func (a *Agent) secrets(v Values, values []string) (all []string) {
	for _, one := range a.all() {
		switch {
		case one.Secret:
			values = append(values, v[one.Name])
		case one.SecretFile:
			text, _ := readSecret(v[one.Name]) // what cannot be read was not sent
			values = append(values, text)
		}
	}
	for _, value := range values {
		if value == "" {
			continue
		}
		quoted := strconv.Quote(value)
		all = append(all, value, plain(value), url.QueryEscape(value), url.PathEscape(value), quoted[1:len(quoted)-1],
			base64.StdEncoding.EncodeToString([]byte(value)), base64.StdEncoding.EncodeToString([]byte(v["username"]+":"+value)))
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return slices.DeleteFunc(slices.Compact(all), func(s string) bool { return s == "" })
}

// struck is the text without the secrets, and without the beginning of one before each cut.
func struck(text string, secrets []string) string {
	const instead = "***"
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, instead)
	}
	if len(text) > maxMessage+len(cut) {
		return text // it is looked at once more
	}
	parts := strings.Split(text, cut)
	for i, part := range parts {
		least := 1
		if i == len(parts)-1 {
			least = minBegun
		}
		if n := begun(part, secrets); n >= least {
			parts[i] = part[:len(part)-n] + instead
		}
	}
	return strings.Join(parts, cut)
}

// begun is how many bytes at the end of a text may be the beginning of a secret.
func begun(text string, secrets []string) (most int) {
	for _, secret := range secrets {
		for at := max(0, len(text)-len(secret)+1); at < len(text)-most; at++ {
			if strings.HasPrefix(secret, text[at:]) {
				most = len(text) - at
			}
		}
	}
	return most
}

// plain is a text on one line, without a character that does not print, or a byte that is none.
func plain(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\ufffd"), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
}

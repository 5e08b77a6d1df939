package main

import (
	"errors"
	"flag"
	"io"
	"strings"
	"unicode"

	"k8s.io/klog/v2"
)

// logPlainly has all that is logged go there as plain text, once: what is logged of others, such as why a
// policy is wrong, acts on nobody's terminal. The flags are klog's.
func logPlainly(flags *flag.FlagSet, to io.Writer) error {
	klog.SetOutput(plainWriter{to})
	return errors.Join(flags.Set("logtostderr", "false"), flags.Set("alsologtostderr", "false"), flags.Set("one_output", "true"), flags.Set("stderrthreshold", "FATAL"))
}

// plain is a text of others, as it may be shown: each character that does not print becomes a space, but
// for line breaks and tabs. It is what package fence/printable of the sidecar's module does.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// plainWriter passes on what is written to it as plain text.
type plainWriter struct{ to io.Writer }

func (w plainWriter) Write(text []byte) (int, error) {
	if _, err := io.WriteString(w.to, plain(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

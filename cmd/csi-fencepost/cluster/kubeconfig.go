package cluster

import (
	"errors"
	"regexp"
)

// inGo are the words of encoding/json, of which client-go keeps the text only.
var inGo = []struct {
	form  *regexp.Regexp
	words string
}{
	{regexp.MustCompile(`couldn't get version/kind; json parse error: .*`), "it is no kubeconfig, which begins with apiVersion: v1 and kind: Config"},
	{regexp.MustCompile(`json: cannot unmarshal (\w+) into Go struct field [^.]*\.(\S+) of type .*`), "$2: Invalid type: found $1"},
	{regexp.MustCompile(`json: cannot unmarshal (\w+) into Go value of type .*`), "Invalid type: found $1"},
}

// ExplainKubeconfig says in words of the file what client-go says in words of Go. The
// error names the file.
func ExplainKubeconfig(err error) error {
	text := err.Error()
	for _, in := range inGo {
		text = in.form.ReplaceAllString(text, in.words)
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

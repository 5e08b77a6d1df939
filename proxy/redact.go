package proxy

import "strings"

// redact takes the values of a request's secrets out of a text that somebody
// else wrote: drivers have been seen to quote them in errors.
func redact(text string, secrets map[string]string) string {
	for _, value := range secrets {
		if value != "" {
			text = strings.ReplaceAll(text, value, "***stripped***")
		}
	}
	return text
}
